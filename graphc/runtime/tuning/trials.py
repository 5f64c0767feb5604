"""Runs executables for their times and results, by which `gc.tune` judges them."""

from __future__ import annotations

import gc as garbage
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from graphc.interrupts import uninterrupted
from graphc.ir.dtypes import Array, float_info, is_complex, is_floating
from graphc.passes.core.validate import tolerance_of
from graphc.runtime.buffers.packing import pack, place_on, unpack
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.executors import shardings

_LEAST_SECONDS = 0.02  # of one measurement: the clock and the caller cost less than 1 % of it
_RUNS = 2  # before results are compared: the second run uses all state that the first one left
_NOTHING = 1e-6  # values that are smaller throughout are compared with this
_NOISE = 8  # a variant may change results this many times as much as rounding of the inputs does


class Trial:
    """One executable with its own state and feeds.

    Args:
        values: the values of all state by name; they are only read.
        feeds: the feeds of one call, as the executable takes them.
    """

    def __init__(self, step: Executable, values: Mapping[str, Array], feeds: Sequence[Any]) -> None:
        self.step, self._values = step, values
        places = shardings(step.interface, step.devices).feeds
        converted = step.convert_feeds(feeds)
        self._feeds = [place_on(v, where) for v, where in zip(converted, places, strict=True)]
        self._buffers: list[Any] = []
        self.calls = 1

    @contextmanager
    def started(self) -> Iterator[None]:
        """A context during which the state is on the devices."""
        layout = self.step.layout
        self._buffers = [self.step.place(pack(b, self._values), b) for b in layout.buffers]
        try:
            yield
        finally:
            self._buffers = []

    def results(self) -> dict[str, Array]:
        """The fetched values of two runs, and all state after them, under readable names."""
        found: dict[str, Array] = {}
        with self.started():
            for run in range(_RUNS):
                fetched = self._run()
                for value, fetch in zip(fetched, self.step.interface.fetches, strict=True):
                    found[f"{fetch.name!r} of run {run + 1}"] = np.array(value)
            for buffer, value in zip(self.step.layout.buffers, self._buffers, strict=True):
                members = unpack(buffer, np.array(value))
                found.update({f"variable {name!r}": v for name, v in members.items()})
        return found

    def warm_up(self) -> None:
        """Runs until the number of calls that makes a measurement long enough is known."""
        self.seconds()
        self.calls = max(1, math.ceil(_LEAST_SECONDS / max(self.seconds(), 1e-6)))

    def seconds(self) -> float:
        """The mean duration of one call in seconds, over `calls` calls, including the wait for its
        result."""
        was_enabled = garbage.isenabled()
        garbage.disable()
        start = time.perf_counter()
        try:
            for _ in range(self.calls):
                last = self._run()
            jax.block_until_ready((last, self._buffers))
        finally:
            if was_enabled:
                garbage.enable()
        return (time.perf_counter() - start) / self.calls

    def _run(self) -> Any:
        return self.step.step(self._buffers, self._feeds)


def collect_garbage() -> None:
    """Frees unused objects now, and not in the middle of a measurement. An interrupt takes effect
    before or after it: Python drops exceptions that are raised in JAX's callbacks for garbage
    collection."""
    uninterrupted(garbage.collect)


def nudged(values: Sequence[Any], seed: int) -> list[Array]:
    """The values with the last bits of every float changed, as rounding might change them."""
    rng = np.random.default_rng(seed)
    return [_nudged(np.asarray(value), rng) for value in values]


def _nudged(value: Array, rng: np.random.Generator) -> Array:
    if not (is_floating(value.dtype) or is_complex(value.dtype)) or value.size == 0:
        return value
    wide = np.complex128 if is_complex(value.dtype) else np.float64
    step = 2.0 ** -float_info(value.dtype).nmant
    signs = rng.choice([-step, step], value.shape)
    result: Array = (value.astype(wide) * (1 + signs)).astype(value.dtype)
    return result


def disagreement(
    wanted: Mapping[str, Array],
    got: Mapping[str, Array],
    nearby: Mapping[str, Array],
    tolerance: float | None,
) -> str | None:
    """Describes a result that differs by more than rounding; None if there is none.

    A result may differ by a part of the largest magnitude of the value, or by a multiple of the
    difference that a change in the last bits of the inputs made. The second rule is needed because,
    for example, the sign of a gradient that is zero except for rounding moves a parameter by a
    whole step of adam.

    Args:
        nearby: the results for inputs that were `nudged`.
        tolerance: that part; with None it depends on the dtype: 1e-4 for float32.
    """
    for name, want in wanted.items():
        value = got.get(name)
        if value is None or (value.dtype, value.shape) != (want.dtype, want.shape):
            return f"{name} is missing, or has another type"
        error = _error(want, value)
        allowed = _NOISE * _error(want, nearby[name])
        if is_floating(want.dtype) or is_complex(want.dtype):
            part = tolerance_of(want.dtype) if tolerance is None else tolerance
            allowed = max(allowed, part * _largest(want))
        if not error <= allowed:
            return f"{name} differs by {error:.3g}; rounding explains {allowed:.3g}"
    return None


def _error(a: Array, b: Array) -> float:
    """The largest difference; infinite if only one array is finite somewhere, or if shapes or
    dtypes differ."""
    wide = np.complex128 if is_complex(a.dtype) else np.float64
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    gaps = np.where(np.isnan(gaps), np.inf, gaps)
    return float(gaps.max(initial=0.0))


def _largest(value: Array) -> float:
    wide = np.complex128 if is_complex(value.dtype) else np.float64
    sizes = np.abs(value.astype(wide))
    return float(sizes[np.isfinite(sizes)].max(initial=_NOTHING))


def upper_bound(ratios: Sequence[float], confidence: float) -> float:
    """An upper bound of the median of the ratios, with that confidence; infinite if there are too
    few ratios.

    By order statistics, for noise of any distribution: David & Nagaraja, Order Statistics,
    3rd ed. 2003, section 7.1.
    """
    count = len(ratios)
    below = 0.0  # the probability that at most this many ratios are below the median
    for number, ratio in enumerate(sorted(ratios)):
        below += math.comb(count, number) / 2**count
        if below >= confidence:
            return ratio
    return math.inf
