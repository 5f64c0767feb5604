"""`graphc submit`: a job for the queue of this machine, a service, or Kubernetes."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphc.cli.jobs import follow, queue_of
from graphc.cli.report import print_result
from graphc.cluster.jobs.clients import LocalQueue
from graphc.cluster.jobs.files import read_job
from graphc.cluster.jobs.spec import JobSpec
from graphc.errors import AttributeValueError, GraphcError

_OVERRIDDEN = ("name", "processes", "devices", "memory", "priority", "restarts", "time_limit",
               "deadline")  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Submits the job, and waits for it if asked to."""
    spec = job_of(options)
    if options.to == "kubernetes":
        _to_kubernetes(spec, options)
        return
    queue = queue_of(options)
    if isinstance(queue, LocalQueue):
        spec = _located(spec, Path(options.job).parent)
    if options.dry_run:
        print(json.dumps(spec.as_dict(), indent=2))
        return
    job = queue.submit(spec)
    print_result(job, [f"job {job['id']} ({job['name']}) is queued"], as_json=options.json)
    if not queue.is_served():
        print(
            "no service runs this queue now; start one: graphc jobs serve --root FOLDER",
            file=sys.stderr,
        )
    if options.wait:
        follow(queue, job["id"], to=sys.stderr if options.json else sys.stdout)


def job_of(options: argparse.Namespace) -> JobSpec:
    """The job of the file, with what the command line says instead.

    Raises:
        AttributeValueError: the job is not valid.
        GraphcError: a file cannot be read.
    """
    path = Path(options.job)
    given = {name: value for name in _OVERRIDDEN if (value := getattr(options, name)) is not None}
    if path.suffix in (".py", ".gcx"):
        kind = "artifact" if path.suffix == ".gcx" else "train" if options.train else "script"
        own: dict[str, Any] = {kind: options.job}
        if options.arguments:
            own["arguments"] = options.arguments
        return JobSpec.of(own | given, "the job")
    if options.train:
        raise AttributeValueError("--train is for scripts; in a job file, write `train: FILE`")
    spec = read_job(path)
    value = spec.as_dict() | given
    if options.arguments:
        value["arguments"] = [*spec.arguments, *options.arguments]
    return JobSpec.of(value, path.name)


def _located(spec: JobSpec, folder: Path) -> JobSpec:
    """The job with absolute paths. In a job file they are relative to its folder; those of the
    command line to the current one.
    """
    base = folder if (folder / spec.program).is_file() else Path()

    def located(path: str) -> str:
        found = (base / path).absolute()
        if not found.is_file():
            raise GraphcError(f"there is no file {path!r}", hint="check the path")
        return str(found)

    inputs = {name: located(path) for name, path in spec.inputs.items()}
    return replace(spec, program=located(spec.program), inputs=inputs)


def _to_kubernetes(spec: JobSpec, options: argparse.Namespace) -> None:
    from graphc.cluster.jobs.kubernetes.manifests import manifests_of, text_of
    from graphc.cluster.jobs.kubernetes.submitting import submit

    if options.wait:
        raise AttributeValueError(
            "--wait is for queues", hint="kubectl wait --for=condition=Completed jobset/NAME"
        )
    manifests = manifests_of(spec)
    if options.dry_run:
        print(text_of(manifests), end="")
        return
    created = submit(manifests)
    name, namespace = created["name"], created["namespace"]
    lines = [
        f"created jobset/{name} in namespace {namespace}",
        f"kubectl logs -n {namespace} -l jobset.sigs.k8s.io/jobset-name={name} -f --prefix",
    ]
    print_result(created, lines, as_json=options.json)
