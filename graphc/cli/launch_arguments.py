"""The arguments of `graphc launch`."""

from __future__ import annotations

import argparse

from graphc.cli.shared_arguments import positive, seconds, takes_script, tolerance


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Runs a script as the processes of a cluster. The script calls gc.cluster.join().

    graphc launch -n 4 train.py -- --epochs 10
    graphc launch -n 2 --devices 4 --restarts 3 train.py
    graphc launch --spec cluster.json --job worker --task 1 train.py
    """
    takes_script(parser, "a Python script")
    _add_all(parser.add_argument_group("all processes on this machine"))
    _add_one(parser.add_argument_group("one process of many"))


def _add_all(here: argparse._ArgumentGroup) -> None:
    here.add_argument("-n", "--processes", type=positive, metavar="N", help="how many workers")
    here.add_argument(
        "--devices",
        type=positive,
        metavar="N",
        help="devices of each process: virtual CPUs, or consecutive GPUs (default: as JAX finds)",
    )
    here.add_argument(
        "--restarts",
        type=int,
        choices=range(1001),
        default=0,
        metavar="N",
        help="how often all processes are started again after one has failed (default: 0)",
    )
    here.add_argument(
        "--grace",
        type=tolerance,
        default=10.0,
        metavar="SECONDS",
        help="time to end after SIGTERM before a process is killed (default: 10)",
    )
    here.add_argument(
        "--silence",
        type=seconds,
        metavar="SECONDS",
        help="a process whose fit has made no step for so long has failed (default: never)",
    )
    here.add_argument(
        "--least",
        type=positive,
        metavar="N",
        help="restart without the processes that failed if at least N are left (default: restart "
        "as many)",
    )
    here.add_argument(
        "--size-file",
        metavar="FILE",
        help="a file with the number of workers: when it changes, all end with a checkpoint, and "
        "so many start",
    )


def _add_one(one: argparse._ArgumentGroup) -> None:
    one.add_argument(
        "--spec",
        metavar="FILE",
        help='a JSON or TOML file: {"worker": ["host:port", ...]}',
    )
    one.add_argument("--job", default="worker", help='"chief" or "worker" (default: worker)')
    one.add_argument("--task", type=int, metavar="INDEX", help="the index of this process")
