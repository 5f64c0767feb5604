"""`Shard`: what the process of one parameter server does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from graphc.cluster.parameter_servers.journal import Journal, Record
from graphc.cluster.parameter_servers.rows import Lookup, look_up
from graphc.cluster.remote_programs import RemoteProgram, Sent
from graphc.config import CompileOptions
from graphc.errors import GraphcError
from graphc.ir.dtypes import Array


class Shard:
    """Some of the variables of a session, and the updates that were applied to them.

    Each worker numbers its updates. An update that arrives twice, because its answer was lost, is
    applied once. A process that is started again continues with the values after the last update
    that it confirmed: it reads its checkpoint and repeats the updates of its log, which gives the
    same bits.

    Args:
        folder: the folder of its journal.
        options: how halves are compiled.
        checkpoint_every: the number of updates between two checkpoints.
    """

    def __init__(self, folder: str, options: CompileOptions, checkpoint_every: int) -> None:
        self._journal = Journal(Path(folder))
        self._options = options
        self._checkpoint_every = checkpoint_every
        self._halves: dict[int, RemoteProgram] = {}
        self._state: dict[str, Any] = {}
        self._run = -1
        self._applied: dict[int, int] = {}  # worker -> the number of its last update
        self._answers: dict[int, list[Array]] = {}  # worker -> the values of that update
        self._updates = self._repeated = self._since = 0
        self._continue()

    def _continue(self) -> None:
        """Reads the state of an earlier process of this server, if there is one."""
        found = self._journal.read()
        if found is None:
            return
        facts, values, updates = found
        count = facts["state"]
        names = list(values)
        self._state = {name: values[name] for name in names[:count]}
        self._run, self._updates = facts["run"], facts["updates"]
        self._applied = {int(worker): number for worker, number in facts["applied"].items()}
        kept = iter([values[name] for name in names[count:]])
        for worker, size in facts["answers"].items():
            self._answers[int(worker)] = [next(kept) for _ in range(size)]
        for record in updates:
            of = record.facts
            if of["run"] == self._run and of["number"] > self._applied.get(of["worker"], -1):
                self._since += 1
                with suppress(GraphcError):  # it failed the first time too, and changed nothing
                    self._apply(of["worker"], of["number"], of["key"], record.arrays)

    def begin(self, run: int, values: dict[str, Array]) -> None:
        """Begins a run with these values. A repeated call of the same run changes nothing."""
        if run == self._run:
            return
        self._run, self._state = run, {name: np.array(value) for name, value in values.items()}
        self._applied, self._answers = {}, {}
        self._updates = self._repeated = 0
        self._checkpoint()

    def pull(self, names: Sequence[str]) -> list[Array]:
        """The current values of some variables."""
        return [np.asarray(self._state[name]) for name in names]

    def look_up(self, lookup: Lookup, indices: Array) -> Array:
        """Rows of a table."""
        rows: Array = look_up(lookup, np.asarray(self._state[lookup.name]), indices)
        return rows

    def push(self, worker: int, number: int, sent: Sent, values: Sequence[Array]) -> list[Array]:
        """Applies the update of a worker, unless it was applied already. Returns the values that
        the update computes.

        Raises:
            NumericsError, ExecutionError: the update failed. The variables are unchanged.
        """
        if number <= self._applied.get(worker, -1):
            self._repeated += 1
            return self._answers[worker]
        self._journal.keep_program(sent.key, sent.data)
        facts = {"run": self._run, "worker": worker, "number": number, "key": sent.key}
        self._journal.append(Record(facts, values))
        answer = self._apply(worker, number, sent.key, values)
        self._since += 1
        if self._since >= self._checkpoint_every:
            self._checkpoint()
        return answer

    def _apply(self, worker: int, number: int, key: int, values: Sequence[Array]) -> list[Array]:
        half = self._halves.get(key)
        if half is None:
            sent = Sent(key, self._journal.program(key), self._options)
            half = self._halves[key] = RemoteProgram(sent)
        answer = half(values, self._state)
        self._applied[worker], self._answers[worker] = number, answer
        self._updates += 1
        return answer

    def _checkpoint(self) -> None:
        state = {name: np.asarray(value) for name, value in self._state.items()}
        answers = {
            f"answer {worker} {i}": value
            for worker, values in self._answers.items()
            for i, value in enumerate(values)
        }
        facts = {
            "run": self._run,
            "updates": self._updates,
            "state": len(state),
            "applied": self._applied,
            "answers": {worker: len(values) for worker, values in self._answers.items()},
        }
        self._journal.checkpoint(facts, {**state, **answers})
        self._since = 0

    def counts(self) -> dict[str, int]:
        """How many updates were applied, and how many arrived again; and the process."""
        return {"updates": self._updates, "repeated": self._repeated, "process": os.getpid()}

    def close(self) -> None:
        """Closes the log."""
        self._journal.close()
