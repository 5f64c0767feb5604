"""Which process of which cluster this one is, from the environment variables of its launcher."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from graphc.cluster.spec import ClusterSpec, Member
from graphc.errors import ClusterError

VARIABLE: Final = "GRAPHC_CLUSTER"
"""Set by `graphc launch`; its form is that of TF_CONFIG."""

LAUNCHER: Final = "GRAPHC_LAUNCHER"
"""The process that watches this one; set by `graphc launch`."""

PORT: Final = 8476  # where the processes meet if the launcher names hosts only

Environment = Mapping[str, str]


def detected(environment: Environment) -> Member | None:
    """This process's place in a cluster, or None outside of one.

    Read in this order: `graphc launch`, TF_CONFIG, Open MPI, Slurm, an indexed Kubernetes job.

    Raises:
        ClusterError: a variable has an invalid value.
    """
    for read in _READERS:
        member = read(environment)
        if member is not None:
            return member
    return None


def text_of(member: Member) -> str:
    """The value of `VARIABLE` for a process."""
    cluster = {job: list(addresses) for job, addresses in member.spec.jobs.items()}
    return json.dumps({"cluster": cluster, "task": {"type": member.job, "index": member.index}})


def _of_json(environment: Environment, variable: str) -> Member | None:
    text = environment.get(variable)
    if not text:
        return None
    try:
        found = json.loads(text)
        cluster, task = found["cluster"], found["task"]
        job, index = task["type"], int(task["index"])
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"{variable} is not valid: {type(error).__name__}: {error}",
            details=[text[:200]],
            hint='it must be {"cluster": {"worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}',
        ) from None
    # The classic system calls the chief "master" in old configurations.
    jobs = {"chief" if name == "master" else name: tasks for name, tasks in cluster.items()}
    return ClusterSpec.of(jobs).member("chief" if job == "master" else job, index)


def _of_open_mpi(environment: Environment) -> Member | None:
    if "OMPI_COMM_WORLD_RANK" not in environment:
        return None
    rank = _number(environment, "OMPI_COMM_WORLD_RANK")
    size = _number(environment, "OMPI_COMM_WORLD_SIZE")
    # Such as "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911": the launcher, on the host of rank 0.
    uri = environment.get("OMPI_MCA_orte_hnp_uri", "")
    hosts = re.search(r"tcp://\[?([0-9.]+)", uri)
    first = hosts[1] if hosts else "127.0.0.1"
    job = re.match(r"\d+", uri)
    return _workers([first], rank, size, int(job[0]) if job else 0)


def _of_slurm(environment: Environment) -> Member | None:
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if nodes is None or "SLURM_PROCID" not in environment:
        return None
    rank = _number(environment, "SLURM_PROCID")
    size = _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    return _workers(hosts_of(nodes)[:1], rank, size, _number(environment, "SLURM_JOB_ID"))


def _of_kubernetes(environment: Environment) -> Member | None:
    """An indexed job behind a headless service: Kubernetes sets the index and the name of the host,
    `job-0`; the manifest sets the service and the number of pods."""
    if "JOB_COMPLETION_INDEX" not in environment or "GRAPHC_SERVICE" not in environment:
        return None
    rank = _number(environment, "JOB_COMPLETION_INDEX")
    size = _number(environment, "GRAPHC_WORKERS")
    name = environment.get("HOSTNAME", "").removesuffix(f"-{rank}")
    service = environment["GRAPHC_SERVICE"]
    addresses = [f"{name}-{index}.{service}:{PORT}" for index in range(size)]
    return ClusterSpec({"worker": addresses}).member("worker", rank)


_READERS: tuple[Callable[[Environment], Member | None], ...] = (
    partial(_of_json, variable=VARIABLE), partial(_of_json, variable="TF_CONFIG"),
    _of_open_mpi, _of_slurm, _of_kubernetes,
)  # fmt: skip


def _workers(hosts: list[str], rank: int, size: int, job: int) -> Member:
    """A worker, of which only the first host is known. Jobs on one host get different ports."""
    addresses: list[Any] = [None] * size
    addresses[0] = f"{hosts[0]}:{PORT + job % 4096}"
    return ClusterSpec({"worker": addresses}).member("worker", rank)


def _number(environment: Environment, *names: str) -> int:
    for name in names:
        text = environment.get(name)
        if text is not None and text.isdecimal():
            return int(text)
    raise ClusterError(
        f"the environment variable {names[0]} must be a number, got {environment.get(names[0])!r}",
        hint="the launcher sets it; or say who this process is: gc.cluster.join(spec, job, index)",
    )


_HOST = r"[^,\[\]]+(\[[^\]]*\])?"


def hosts_of(text: str) -> list[str]:
    """The hosts of a list as Slurm writes it: "a[01-03,7],b" is a01, a02, a03, a7, b.

    Raises:
        ClusterError: it has another form.
    """
    if not re.fullmatch(rf"{_HOST}(,{_HOST})*", text):
        raise _not_a_list(text)
    found: list[str] = []
    for prefix, ranges in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", text):
        if not ranges:
            found.append(prefix)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            if not first.isdecimal() or (last and not last.isdecimal()):
                raise _not_a_list(text)
            width = len(first)
            numbers = range(int(first), int(last or first) + 1)
            found += [f"{prefix}{number:0{width}d}" for number in numbers]
    return found


def _not_a_list(text: str) -> ClusterError:
    return ClusterError(f"{text!r} is not a list of hosts as Slurm writes it")
