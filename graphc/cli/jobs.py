"""`graphc jobs`: shows, stops, restarts and resumes jobs, and serves a queue."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from graphc.cli.report import print_json, print_result
from graphc.cluster.jobs.clients import LocalQueue, Queue, RemoteQueue, default_folder
from graphc.cluster.jobs.records import ENDED, SUCCEEDED
from graphc.errors import AttributeValueError, GraphcError

_TURN = 0.5  # seconds between two looks at a job


def run(options: argparse.Namespace) -> None:
    """Does what the action says."""
    if options.action == "serve":
        from graphc.cli.jobs_serve import serve

        serve(options)
        return
    queue = queue_of(options)
    if options.action == "list":
        _list(queue, options)
        return
    if options.number is None:
        raise AttributeValueError(
            f"which job? give its number: graphc jobs {options.action} JOB", hint="graphc jobs list"
        )
    if options.action == "log":
        if options.follow:
            follow(queue, options.number)
        else:
            _copy(queue, options.number, 0, sys.stdout)
        return
    if options.action == "show":
        job = queue.details(options.number)
        lines = [f"{name}: {value}" for name, value in job.items() if value is not None]
    else:
        job = queue.act(options.number, options.action)
        lines = [f"job {job['id']} ({job['name']}): {_state(job)}"]
    print_result(job, lines, as_json=options.json)


def queue_of(options: argparse.Namespace) -> Queue:
    """The queue that the options name.

    Raises:
        GraphcError: the file of the token cannot be read, or there is no token.
        AttributeValueError: they name two.
    """
    url = options.server or (None if options.queue else os.environ.get("GRAPHC_JOBS_SERVER"))
    if url is None:
        return LocalQueue(Path(options.queue) if options.queue else default_folder())
    if options.queue:
        raise AttributeValueError("--server and --queue name two queues", hint="give one of them")
    token = os.environ.get("GRAPHC_TOKEN")
    if options.token_file is not None:
        try:
            token = Path(options.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise GraphcError(f"cannot read {options.token_file!r}: {error}") from None
    if not token or not token.isascii() or not token.isprintable():
        raise GraphcError(
            f"{url} needs a token", hint="set GRAPHC_TOKEN, or give --token-file FILE"
        )
    return RemoteQueue(url, token)


def follow(queue: Queue, number: int, to: IO[str] | None = None) -> None:
    """Shows the log of a job until it ends, and fails if it does.

    Raises:
        SystemExit: the job failed, with its exit status or 1.
    """
    out = to or sys.stdout
    offset = 0
    run = None
    while True:
        job = queue.details(number)  # before the last part is read
        if job["run"] != run:
            run, offset = job["run"], 0
        before = offset
        offset = _copy(queue, number, offset, out)
        if job["state"] in ENDED and offset == before:
            break
        if offset == before:
            time.sleep(_TURN)
    print(f"job {number} ({job['name']}): {_state(job)}", file=sys.stderr)
    if job["state"] != SUCCEEDED:
        raise SystemExit(job["exit"] or 1)


def _copy(queue: Queue, number: int, offset: int, out: IO[str]) -> int:
    """Writes a log from an offset to its present end, and returns that."""
    while True:
        data, end = queue.log(number, offset)
        if not data:
            return max(offset, end)
        out.write(data.decode("utf-8", "replace"))
        out.flush()
        offset = end


def _list(queue: Queue, options: argparse.Namespace) -> None:
    found = queue.listed(options.limit)
    if options.json:
        print_json(found)
        return
    shown = [f"{count} {state}" for state, count in found["counts"].items() if count]
    print(", ".join(shown) or "no jobs")
    rows = [_row(job) for job in found["jobs"]]
    if rows:
        head = ["JOB", "NAME", "USER", "STATE", "PROC", "DEV", "PRIO", "SUBMITTED", "TIME"]
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        for row in [head, *rows]:
            cells = zip(row, widths, strict=False)
            line = "  ".join(cell.ljust(width) for cell, width in cells).rstrip()
            print(f"{line}  {row[-1]}".rstrip() if len(row) > len(head) else line)
    if not queue.is_served():
        print("no service runs this queue now", file=sys.stderr)


def _row(job: dict[str, Any]) -> list[str]:
    when = datetime.fromtimestamp(job["submitted"]).strftime("%m-%d %H:%M:%S")
    seconds = "-"
    if job["started"] is not None:
        seconds = f"{(job['ended'] or time.time()) - job['started']:.0f} s"
    state = "stopping" if job["stopping"] else job["state"]
    devices = str(job["processes"] * job["devices"])
    return [str(job["id"]), job["name"], job["user"], state, str(job["processes"]), devices,
            str(job["priority"]), when, seconds, job["reason"]]  # fmt: skip


def _state(job: dict[str, Any]) -> str:
    state = "stopping" if job["stopping"] else str(job["state"])
    same = not job["reason"] or job["reason"] == state
    return state if same else f"{state}: {job['reason']}"
