"""`ClusterSpec`: the processes of a cluster, by job. `Member`: one of them."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphc.errors import ClusterError, UnknownNameError, nearest

COMPUTING: Final = ("chief", "worker")
"""The jobs whose processes run steps together, in the order of their ranks."""

JOBS: Final = (*COMPUTING, "ps", "evaluator")

_FORM = 'ClusterSpec({"worker": ["10.0.0.1:2222"]})'
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


@dataclass(frozen=True)
class ClusterSpec:
    """The processes of a cluster: the jobs, and the address of each of their tasks.

    The tasks of the jobs "chief" and "worker" run steps together: they have ranks, the chief first.
    "ps" and "evaluator" name processes that do not.

    Args:
        jobs: job -> the addresses ("host:port") of its tasks. An address is None if it is not known
            and not needed: only that of rank 0 is.

    Raises:
        ClusterError: a job or an address is not valid, an address is given twice, there are several
            chiefs, or no process runs steps.

    Examples:
        >>> spec = gc.cluster.ClusterSpec({"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]})
        >>> spec.count("worker"), spec.address("worker", 1)
        (2, '10.0.0.2:2222')
    """

    jobs: Mapping[str, Sequence[str | None]]

    def __post_init__(self) -> None:
        jobs: Any = self.jobs
        if not isinstance(jobs, Mapping) or not jobs:
            raise _invalid(f"jobs must be a dict of lists of addresses, got {jobs!r}")
        for job, addresses in jobs.items():
            if job not in JOBS:
                raise _invalid(f"{job!r} is not a job", nearest(job, JOBS, "the jobs"))
            if isinstance(addresses, str) or not isinstance(addresses, Sequence):
                raise _invalid(f"the tasks of {job!r} must be a list of addresses")
            for address in addresses:
                _check_address(job, address)
        given = [a for addresses in jobs.values() for a in addresses if a is not None]
        twice = next((address for address in given if given.count(address) > 1), None)
        if twice is not None:
            raise _invalid(f"{twice!r} is the address of two tasks", "give each its own port")
        if len(jobs.get("chief", ())) > 1:
            raise _invalid("there is more than one chief", "make the others workers")
        object.__setattr__(self, "jobs", {job: tuple(tasks) for job, tasks in jobs.items()})
        if not self.size:
            raise _invalid("it has no worker", 'give addresses for the job "worker"')

    @staticmethod
    def of(
        value: ClusterSpec | Mapping[str, Sequence[str | None]] | str | os.PathLike[str],
    ) -> ClusterSpec:
        """A specification from a dict of jobs, or from a JSON or TOML file that holds one. The dict
        may also be under the key "cluster", as in TF_CONFIG.

        Raises:
            ClusterError: the file cannot be read, or the specification is not valid.

        Examples:
            >>> gc.cluster.ClusterSpec.of({"worker": ["localhost:2222"]}).size
            1
        """
        if isinstance(value, ClusterSpec):
            return value
        found: Any = _read(Path(value)) if isinstance(value, (str, os.PathLike)) else value
        if isinstance(found, Mapping) and isinstance(found.get("cluster"), Mapping):
            found = found["cluster"]
        return ClusterSpec(found)

    @property
    def size(self) -> int:
        """The number of processes that run steps together.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"], "ps": ["c:1"]}).size
            2
        """
        return sum(len(self.jobs.get(job, ())) for job in COMPUTING)

    @property
    def coordinator(self) -> str | None:
        """The address of rank 0, where the processes find each other.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["b:1"], "chief": ["a:1"]}).coordinator
            'a:1'
        """
        return next(self.jobs[job][0] for job in COMPUTING if self.jobs.get(job))

    def count(self, job: str) -> int:
        """The number of tasks of a job; 0 if the cluster does not have it.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"]}).count("ps")
            0
        """
        return len(self.jobs.get(job, ()))

    def address(self, job: str, index: int) -> str | None:
        """The address of a task, or None if it is not known.

        Raises:
            UnknownNameError: the cluster does not have this task.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"]}).address("worker", 1)
            'b:1'
        """
        return self.jobs[job][self.member(job, index).index]

    def member(self, job: str, index: int) -> Member:
        """One of the processes.

        Raises:
            UnknownNameError: the cluster does not have this task.

        Examples:
            >>> gc.cluster.ClusterSpec({"chief": ["a:1"], "worker": ["b:1"]}).member("worker", 0)
            <Member /job:worker/task:0: rank 1 of 2>
        """
        if not 0 <= index < self.count(job):
            known = [f"/job:{job}/task:{i}" for job in self.jobs for i in range(self.count(job))]
            raise UnknownNameError.here(
                f"the cluster has no task /job:{job}/task:{index}",
                hint=f"it has {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}",
            )
        return Member(self, job, index)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.jobs.items())))


@dataclass(frozen=True, repr=False)
class Member:
    """One process of a cluster: task `index` of `job`.

    Examples:
        >>> spec = gc.cluster.ClusterSpec({"worker": ["localhost:2222", "localhost:2223"]})
        >>> member = spec.member("worker", 1)
        >>> member.rank, member.size, member.is_chief
        (1, 2, False)
    """

    spec: ClusterSpec
    job: str
    index: int

    @property
    def rank(self) -> int | None:
        """Its number among the processes that run steps together; None if it is not one of them.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]}).member("ps", 0).rank
        """
        if self.job not in COMPUTING:
            return None
        before = COMPUTING[: COMPUTING.index(self.job)]
        return sum(map(self.spec.count, before)) + self.index

    @property
    def size(self) -> int:
        """The number of processes that run steps together.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"]}).member("worker", 0).size
            2
        """
        return self.spec.size

    @property
    def is_chief(self) -> bool:
        """Whether it has rank 0. The chief writes what there is once: checkpoints and logs.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"]}).member("worker", 0).is_chief
            True
        """
        return self.rank == 0

    @property
    def name(self) -> str:
        """The beginning of the names of its devices.

        Examples:
            >>> gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"]}).member("worker", 1).name
            '/job:worker/task:1'
        """
        return f"/job:{self.job}/task:{self.index}"

    def __repr__(self) -> str:
        place = "no rank" if self.rank is None else f"rank {self.rank} of {self.size}"
        return f"<Member {self.name}: {place}>"


def _check_address(job: str, address: object) -> None:
    if address is None:
        return
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or not 0 < int(match[2]) < 65536:
        raise _invalid(
            f"{address!r}, a task of {job!r}, is not an address",
            'write "host:port": "10.0.0.1:2222"',
        )


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:  # also errors of JSON, TOML and UTF-8
        raise ClusterError.here(
            f"the cluster specification {str(path)!r} cannot be read: {error}",
            hint='a JSON file holds {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}',
        ) from None


def _invalid(
    what: str, hint: str | None = 'ClusterSpec({"worker": ["10.0.0.1:2222"]})'
) -> ClusterError:
    return ClusterError.here(f"the cluster specification is not valid: {what}", hint=hint)
