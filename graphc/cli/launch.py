"""`graphc launch`: a script as the processes of a cluster."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from graphc.cli.shared_arguments import chosen
from graphc.cluster.detection import VARIABLE, text_of
from graphc.cluster.launching import launch
from graphc.cluster.spec import ClusterSpec
from graphc.errors import AttributeValueError, ClusterError


def run(options: argparse.Namespace) -> None:
    """Runs the script to its end, and ends with its exit status."""
    if not Path(options.script).is_file():
        raise ClusterError(f"no script {options.script!r}", hint="check the path")
    command = [sys.executable, options.script, *options.arguments]
    if (options.processes is None) == (options.spec is None):
        raise AttributeValueError(
            "give either a number of processes or a specification",
            hint="graphc launch -n 4 train.py; or graphc launch --spec cluster.json --task 1 "
            "train.py",
        )
    if options.spec is not None:
        _become(command, options)
    status = launch(
        command,
        options.processes,
        **chosen(options, "devices", "restarts", "grace", "silence", "least", "size_file"),
    )
    if status:
        raise SystemExit(status)


def _become(command: list[str], options: argparse.Namespace) -> None:
    """Replaces this process by the script, as one process of the cluster."""
    if options.task is None:
        raise AttributeValueError(
            "which task is this process?",
            hint="graphc launch --spec cluster.json --task 1 train.py",
        )
    member = ClusterSpec.of(options.spec).member(options.job, options.task)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, VARIABLE: text_of(member)})
