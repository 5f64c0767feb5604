"""How far the processes of a cluster are, and which of them the others wait for."""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_SECONDS = 10.0  # over which the time that a process makes others wait is measured
_FEWEST = 3  # steps in that time
_SLOW, _QUICK = 0.2, 0.1  # parts of the time


class Sign(NamedTuple):
    """What `fit` in a process says: see `graphc.train.callbacks.sign_of_life`.

    Attributes:
        step: the last step.
        steps: the number of steps; None if it is not known.
        late: for how many seconds the process has made the others wait.
    """

    step: int
    steps: int | None
    late: float


class Progress:
    """The progress of one process, as `fit` tells it in a file.

    Attributes:
        name: of the process.
        sign: the last sign of life; None outside of `fit`.
        first: the step at which `fit` began; None before.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.sign: Sign | None = None
        self.first: int | None = None
        self._stepped_at = time.monotonic()
        self._signs: deque[tuple[float, Sign]] = deque()

    def look(self) -> None:
        """Reads the file."""
        now, before = time.monotonic(), self.sign
        self.sign = sign = _read(self.path)
        if sign is None:
            self._signs.clear()
        if sign is None or before is None or sign.step != before.step:
            self._stepped_at = now
        if sign is None or sign == before:
            return
        if self.first is None:
            self.first = sign.step
        self._signs.append((now, sign))
        while now - self._signs[0][0] > _SECONDS and len(self._signs) > 2:
            self._signs.popleft()

    @property
    def silence(self) -> float:
        """For how many seconds `fit` has made no step; 0 outside of `fit`."""
        return 0.0 if self.sign is None else time.monotonic() - self._stepped_at

    @property
    def lateness(self) -> tuple[float, float] | None:
        """The part of the last seconds in which the others waited for this process, and seconds a
        step. None if that is not known yet."""
        if len(self._signs) < 2:
            return None
        (begin, first), (end, last) = self._signs[0], self._signs[-1]
        steps, late = last.step - first.step, last.late - first.late
        if end - begin < _SECONDS / 2 or steps < _FEWEST:
            return None
        return late / (end - begin), late / steps


class Stragglers:
    """Finds processes that make all others wait, and names each once until it is quick again."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def new(self, processes: Sequence[Progress]) -> list[str]:
        """Texts about processes that have become slow."""
        found = {p.name: p.lateness for p in processes}
        known = {name: late for name, late in found.items() if late is not None}
        if len(known) < len(processes) or len(known) < 2:
            return []
        texts = []
        for name, (part, seconds) in known.items():
            others = [other for n, (other, _) in known.items() if n != name]
            more = part - statistics.median(others)
            if more < _QUICK:
                self._named.discard(name)
            elif more > _SLOW and name not in self._named:
                self._named.add(name)
                texts.append(
                    f"{name} is slow: the others wait for it {100 * part:.0f} % of the time, "
                    f"{1e3 * seconds:.0f} ms a step, for its input or its callbacks"
                )
        return texts


def _read(path: Path) -> Sign | None:
    try:
        found: Any = json.loads(path.read_text())
        steps = found["of"]
        return Sign(int(found["step"]), None if steps is None else int(steps), float(found["late"]))
    except (OSError, ValueError, TypeError, KeyError):  # it does not exist, or is of something else
        return None
