"""A model with a state, without artifacts, for isolated and fast tests of sessions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphc.serving.config import SessionConfig
from graphc.serving.models.sessions import Sessions
from graphc.serving.models.uses import Uses
from graphc.web.failures import Failure
from tests.serving.fakes import Arrays, typed


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class CountingState:
    """`add` and `twice` add x or 2 x to the client's total. Each signature takes 8 bytes.

    A total of 1001 makes the run fail.

    Attributes:
        held: if it is a list, runs wait in it until the test calls them.
        holds_begun: the runs that wait have begun: they can no longer be cancelled.
    """

    def __init__(self, seed: int | None) -> None:
        self.total = seed or 0
        self.is_lost = False
        self.held: list[Any] | None = None
        self.holds_begun = False

    def nbytes(self, signatures: set[str]) -> int:
        return 8 * len(signatures)

    def submit(self, signature: str, inputs: Arrays, deadline: float | None = None) -> Future:
        found: Future = Future()

        def run() -> None:
            if not found.running() and not found.set_running_or_notify_cancel():
                return
            if inputs["x"].sum() == 1001:
                found.set_exception(Failure("INTERNAL", "the run failed"))
                return
            self.total += int(inputs["x"].sum()) * (2 if signature == "twice" else 1)
            total = np.array([self.total % 2**31], np.int32)
            found.set_result({"total": total, "x": inputs["x"]})

        if self.held is None:
            run()
        else:
            if self.holds_begun:
                found.set_running_or_notify_cancel()
            self.held.append(run)
        return found


class CountingServable:
    """One version of the model `counter`."""

    def __init__(self, version: int = 1, name: str = "counter") -> None:
        self.name, self.version = name, version
        self.uses = Uses()
        self.states: list[CountingState] = []
        self.signatures: Any = {
            name: SimpleNamespace(
                name=name,
                inputs={"x": typed("i32[n]")},
                outputs={"total": typed("i32[1]"), "x": typed("i32[n]")},
                assigned=("total",),
                updates_state=True,
            )
            for name in ("add", "twice")
        }
        self.default = "add"

    @property
    def in_use(self) -> int:
        return self.uses._count

    def private(self, seed: int | None = None) -> Any:
        self.states.append(CountingState(seed))
        return self.states[-1]


class CountingManager:
    """Serves `counter` with sessions."""

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.servable = CountingServable()
        self.sessions = Sessions(SessionConfig(**limits), self.clock)

    @contextmanager
    def use(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[CountingServable]:
        if name != "counter" or version not in (None, 1):
            raise Failure("NOT_FOUND", f"Servable not found for request: Latest({name})")
        self.servable.uses.enter()
        try:
            yield self.servable
        finally:
            self.servable.uses.leave()

    def names(self) -> list[str]:
        return ["counter"]

    def status(self, name: str, version: int | None = None) -> list[Any]:
        return []

    def reload(self, configs: Any, wait: bool = True) -> None:
        raise NotImplementedError
