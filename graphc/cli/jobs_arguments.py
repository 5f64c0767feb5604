"""The arguments of `graphc submit` and `graphc jobs`."""

from __future__ import annotations

import argparse
from functools import partial

from graphc.cli.shared_arguments import action, positive

ACTIONS = ("serve", "list", "show", "log", "stop", "restart", "resume")


def add_submit_arguments(parser: argparse.ArgumentParser) -> None:
    """Submits a job: to the queue of this machine, to a service of jobs, or to Kubernetes.

    graphc submit job.yaml
    graphc submit train.py -n 2 --restarts 3 --time-limit 2h -- --rate 0.1
    graphc submit job.yaml --server http://127.0.0.1:8600
    graphc submit job.yaml --to kubernetes --dry-run
    """
    parser.set_defaults(takes_arguments=True, whole_errors=True)
    parser.add_argument(
        "job",
        metavar="FILE",
        help="a job file (.yaml, .json, .toml), a script (.py) or an artifact (.gcx); arguments "
        "after -- are added to those of the job",
    )
    where = parser.add_argument_group("where")
    where.add_argument("--to", choices=("queue", "kubernetes"), default="queue", help="(default: "
                       "queue)")  # fmt: skip
    _add_queue(where)
    where.add_argument(
        "--dry-run", action="store_true", help="print the job, or the manifests, and submit nothing"
    )
    what = parser.add_argument_group("the job, instead of what the file says")
    what.add_argument(
        "--train", action="store_true", help="the script has a build(): graphc train runs it"
    )
    what.add_argument("--name", help="for people, and in Kubernetes")
    what.add_argument("-n", "--processes", type=positive, metavar="N", help="how many processes")
    what.add_argument("--devices", type=positive, metavar="N", help="devices of each process")
    what.add_argument("--memory", metavar="SIZE", help="of each process, such as 4GiB")
    what.add_argument("--priority", type=int, metavar="N", help="-100 to 100 (default: 0)")
    what.add_argument("--restarts", type=int, metavar="N", help="after failures (default: 0)")
    what.add_argument("--time-limit", metavar="TIME", help="for which it may run, such as 2h")
    what.add_argument("--deadline", metavar="TIME", help="from now, by which it must have ended")
    after = parser.add_argument_group("afterwards")
    after.add_argument(
        "--wait", action="store_true", help="show the log until the job ends; fail if it fails"
    )
    after.add_argument("--json", action="store_true", help="print JSON for other programs")


def add_jobs_arguments(parser: argparse.ArgumentParser) -> None:
    """Shows, stops, restarts and resumes jobs, or serves a queue: runs its jobs, with a web page.

    graphc jobs serve --root examples
    graphc jobs list
    graphc jobs log 3 --follow
    graphc jobs stop 3
    """
    parser.set_defaults(whole_errors=True)
    kind = partial(action, command="graphc jobs", known=ACTIONS)
    parser.add_argument("action", type=kind, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("number", nargs="?", type=positive, metavar="JOB", help="its number")
    _add_queue(parser.add_argument_group("which queue"))
    reading = parser.add_argument_group("list, show, log")
    reading.add_argument(
        "--limit", type=positive, default=50, metavar="N", help="jobs of a list (default: 50)"
    )
    reading.add_argument("--follow", action="store_true", help="a log until its job ends")
    reading.add_argument("--json", action="store_true", help="print JSON for other programs")
    _add_service(parser.add_argument_group("serve"))


def _add_queue(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--queue", metavar="FOLDER", help="of this machine (default: $GRAPHC_JOBS, or the user's)"
    )
    group.add_argument("--server", metavar="URL", help="a service (default: $GRAPHC_JOBS_SERVER)")
    group.add_argument(
        "--token-file", metavar="FILE", help="the token for --server (default: $GRAPHC_TOKEN)"
    )


def _add_service(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder whose scripts and artifacts jobs may run; may be repeated",
    )
    group.add_argument(
        "--users",
        metavar="FILE",
        help="a TOML file with the users, their tokens and quotas (default: you alone)",
    )
    group.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="(default: 127.0.0.1)"
    )
    group.add_argument("--port", type=int, default=8600, metavar="N", help="(default: 8600)")
    group.add_argument("--tls-certificate", metavar="FILE", help="serve HTTPS")
    group.add_argument("--tls-key", metavar="FILE", help="the key of the certificate")
    group.add_argument(
        "--max-processes", type=positive, metavar="N", help="of all jobs (default: as devices)"
    )
    group.add_argument(
        "--max-devices", type=positive, metavar="N", help="of all jobs (default: GPUs, or CPUs)"
    )
    group.add_argument(
        "--max-memory", metavar="SIZE", help="of all jobs (default: 9/10 of the machine's)"
    )
    group.add_argument(
        "--gpus", metavar="LIST", help="the numbers of the GPUs that jobs get, such as 0,1,2,3"
    )
