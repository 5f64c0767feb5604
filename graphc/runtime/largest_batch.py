"""The largest batch with which a step fits into the memory of its devices.

Memory is nearly affine in the batch size. So each next batch is interpolated between the largest
one that is known to fit and the smallest one that is known not to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphc.errors import MemoryLimitError
from graphc.runtime.pipeline.fitting import taken_by
from graphc.runtime.step.executable import Executable

_TRIES = 16
_PRECISION = 32  # the result is at most 1/32 below the largest batch
_GROWTH = 64  # the largest factor from one try to the next, because memory may not be affine


@dataclass(frozen=True)
class Tried:
    """A batch for which the step was compiled.

    Attributes:
        batch: the number of rows on all devices together.
        bytes: the bytes that a run needs on each device; if it does not fit, a lower bound.
        step: the compiled step; None if it does not fit.
    """

    batch: int
    bytes: int
    step: Executable | None


def try_batch(compile_for: Callable[[int], Executable], batch: int) -> Tried:
    """Compiles for a batch under the memory limit of `compile_for`."""
    try:
        step = compile_for(batch).wait()
    except MemoryLimitError as error:
        return Tried(batch, error.least, None)
    return Tried(batch, taken_by(step.compiled), step)


def largest_batch(
    compile_for: Callable[[int], Executable],
    start: int,
    limit: int,
    unit: int = 1,
    tell: Callable[[Tried], None] = lambda tried: None,
) -> Tried | None:
    """The largest batch that fits, within 1/32; None if not even `unit` rows fit.

    Args:
        compile_for: compiles for a batch; raises `MemoryLimitError` if that does not fit.
        start: the first batch to try.
        limit: bytes on each device.
        unit: batches are multiples of this number, which is the number of devices that share them.
        tell: called with each batch that was tried.
    """
    fits: Tried | None = None
    too_large: Tried | None = None
    batch = max(unit, start // unit * unit)
    for _ in range(_TRIES):
        found = try_batch(compile_for, batch)
        tell(found)
        if found.step is None:
            too_large = found
        else:
            fits = found
        next_batch = _next(fits, too_large, limit, unit)
        if next_batch is None:
            break
        batch = next_batch
    return fits


def _next(fits: Tried | None, too_large: Tried | None, limit: int, unit: int) -> int | None:
    """The next batch to try; None if the result is precise enough."""
    if fits is None:
        if too_large is None or too_large.batch <= unit:
            return None
        guess = too_large.batch * min(0.5, limit / too_large.bytes)
        return max(unit, int(guess) // unit * unit)
    if too_large is None:
        guess = fits.batch * min(_GROWTH, max(1.25, 0.98 * limit / fits.bytes))
        return max(fits.batch + unit, int(guess) // unit * unit)
    gap = too_large.batch - fits.batch
    if gap <= max(unit, fits.batch // _PRECISION):
        return None
    slope = (too_large.bytes - fits.bytes) / gap
    part = (limit - fits.bytes) / (slope * gap) if slope > 0 else 0.5
    # Never close to an end: recomputation changes with the batch, and the slope changes with it.
    step = int(gap * min(max(part, 0.1), 0.9)) // unit * unit
    return fits.batch + min(max(step, unit), gap - unit)
