"""Chooses by a trial how many steps `fit` executes in one call."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from graphc.errors import AttributeValueError, FeedError
from graphc.ir.opdef import Effects
from graphc.ir.program import effects_of
from graphc.runtime.session import Session
from graphc.runtime.state.initial import state_types
from graphc.train.stepping import Stepper

_WARM = 8  # steps before the time of steps is measured
_MEASURED = 32  # steps whose time is measured
_FEW = 8  # fewer measured steps are not significant
_SLOWEST = 4e-4  # seconds per step: in slower steps, the overhead of a call is below a tenth
_CALL = 0.01  # seconds that a call should take
_LARGEST = 128  # steps in a call
_STATE = 32 << 20  # bytes: the trial copies the state
# The largest useful part of the time of single steps. A smaller gain is not worth the delay of
# signals and stops.
_GAIN = 0.9

Feeds = Mapping[Any, Any]


class CallSize:
    """The number of steps of the next call.

    With "auto" it measures single steps. If they are short, it executes some steps in both ways
    from the same state: one by one, and in one call. It uses several steps in one call if that is
    faster and gives the same bits.

    Args:
        setting: "auto" or a number of steps.
        stepper: executes the steps.
        largest: the largest number of steps that callbacks and validation allow.
        steps: how many steps the loop has; None if this is unknown.

    Attributes:
        to_try: how many batches `trial` needs next; 0 for no trial.
    """

    def __init__(
        self,
        setting: str | int,
        session: Session,
        stepper: Stepper,
        largest: int,
        steps: int | None,
    ) -> None:
        self._session, self._stepper = session, stepper
        self._chosen = checked_setting(setting)
        self._largest = min(largest, _LARGEST)
        self._all, self._steps = steps, 0
        self.to_try = 0
        self.measuring = setting == "auto" and self._largest >= 4 and self._may_repeat()
        # The processes of a cluster would measure different times, and choose different sizes.
        self.measuring = self.measuring and not session.spans_processes

    def _may_repeat(self) -> bool:
        """Whether a step may be executed twice in a trial."""
        graph = self._session.graph
        if any(effects_of(node) & Effects.HOST for node in graph.nodes):
            return False
        used = 0
        for type_ in state_types(graph).values():
            shape = [size for size in type_.shape if isinstance(size, int)]  # all sizes are ints
            used += type_.dtype.itemsize * math.prod(shape)
        return used <= _STATE

    def until(self, step: int) -> int:
        """The step up to which single steps may run without checking this object."""
        return step + (_MEASURED if self._steps >= _WARM else _WARM)

    def size(self, room: int) -> int:
        """The number of steps of the next call, if `room` steps are allowed."""
        return self._chosen if 1 < self._chosen <= room else 1

    def ran(self, steps: int, seconds: float, compiling: float) -> None:
        """Records the number and the time of single steps that have run.

        Args:
            compiling: the time of the first step. The first call of several steps takes it again.
        """
        self._steps += steps
        if self._steps <= _WARM:
            return
        few = steps < _FEW
        self.measuring = few and self._steps < 10 * _MEASURED
        if few or seconds / steps > _SLOWEST:
            return
        if self._all is not None and (self._all - self._steps) * seconds / steps < compiling:
            return
        wanted = _CALL * steps / seconds
        size = 4
        while 2 * size <= min(wanted, self._largest):
            size *= 2
        self.to_try = size

    def trial(self, feeds: list[Feeds]) -> list[list[Any]] | None:
        """Executes these steps in both ways and decides. The state is then that after the steps.

        Returns:
            The values of each step; None if nothing has run, because there are too few feeds or
                because they differ in shape.
        """
        n, self.to_try = self.to_try, 0
        if len(feeds) < n:
            return None
        names = list(state_types(self._session.graph))
        before = self._session.values(names)
        try:
            self._stepper.several(feeds)  # compiles
            self._session.set_all(before)
            together, rows = _timed(lambda: self._stepper.several(feeds))
        except FeedError:
            return None
        finally:
            after = self._session.values(names)
            self._session.set_all(before)
        singles: list[list[Any]]
        one_by_one, singles = _timed(lambda: [self._stepper.single(each) for each in feeds])
        same = _same_bits(list(after.values()), list(self._session.values(names).values()))
        for column, values in zip(rows, zip(*singles, strict=True), strict=True):
            same = same and (column is None or _same_bits(list(np.asarray(column)), list(values)))
        if same and together < _GAIN * one_by_one:
            self._chosen = n
        return singles


def checked_setting(setting: Any) -> int:
    """The initial number of steps in a call.

    Raises:
        AttributeValueError: the setting is not "auto" or a number of steps.
    """
    if setting == "auto":
        return 1
    if type(setting) is not int or setting < 1:
        raise AttributeValueError.here(
            f'fit: steps_per_call must be "auto" or an int of at least 1, got {setting!r}'
        )
    return setting


def _timed(work: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = jax.block_until_ready(work())
    return time.perf_counter() - begin, found


def _same_bits(some: list[Any], others: list[Any]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
