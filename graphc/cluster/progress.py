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
        late: for how many seconds the device has waited for the process to begin a step.
        own: for how many seconds the process was not in `session.run`.
    """

    step: int
    steps: int | None
    late: float
    own: float


class Pace(NamedTuple):
    """The last seconds of a process: `late` and `own` as parts of the time, and seconds a step."""

    late: float
    own: float
    step: float


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
    def pace(self) -> Pace | None:
        """The pace of the last seconds. None if it is not known yet."""
        if len(self._signs) < 2:
            return None
        (begin, first), (end, last) = self._signs[0], self._signs[-1]
        steps, seconds = last.step - first.step, end - begin
        if seconds < _SECONDS / 2 or steps < _FEWEST:
            return None
        late, own = last.late - first.late, last.own - first.own
        return Pace(late / seconds, own / seconds, seconds / steps)


class Stragglers:
    """Finds processes that make all others wait, and names each once until it is quick again."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def new(self, processes: Sequence[Progress]) -> list[str]:
        """Texts about processes that have become slow."""
        found = {p.name: p.pace for p in processes}
        known = {name: pace for name, pace in found.items() if pace is not None}
        if len(known) < len(processes) or len(known) < 2:
            return []
        texts = []
        for name, pace in known.items():
            others = [other.own for n, other in known.items() if n != name]
            part = min(pace.late, pace.own - statistics.median(others))
            if part < _QUICK:
                self._named.discard(name)
            elif part > _SLOW and name not in self._named:
                self._named.add(name)
                texts.append(
                    f"{name} is slow: the others wait for it {100 * part:.0f} % of the time, "
                    f"{1e3 * part * pace.step:.0f} ms a step, for its input or its callbacks"
                )
        return texts


def _read(path: Path) -> Sign | None:
    try:
        found: Any = json.loads(path.read_text())
        steps = found["of"]
        step, late, own = int(found["step"]), float(found["late"]), float(found["own"])
        return Sign(step, None if steps is None else int(steps), late, own)
    except (OSError, ValueError, TypeError, KeyError):  # it does not exist, or is of something else
        return None
