"""Training and prediction on the devices of this process.

An epoch is one call: its batches are the steps of one loop on the device. All batches have the same
number of rows. The last one is filled up with rows of weight 0, so it needs no program of its own.
The added rows repeat rows of the data, so batch statistics see no artificial values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import NumericsError
from graphc.ir.dtypes import Array
from graphc.runtime.feeds.feed_memory import aligned
from graphc.runtime.state.state import State
from graphc.sklearn.networks import (
    FEATURES,
    LOSS,
    STEP,
    TARGETS,
    WEIGHT,
    WEIGHTS,
    Network,
    Networks,
)
from graphc.sklearn.programs import Program, kept_states, program_of, state_of, values_of

LEAST_ROWS = 8  # of a batch: smaller ones are filled up
_MOST_ROWS = 1024  # of one call that predicts
_MOST_BYTES = 64 * 2**20  # of the features of one call
_MOST_STEPS = 1024  # of one call that trains
_FEW_STEPS = 64  # epochs of fewer steps are trained together
_IN_FLIGHT = 8  # epochs whose losses have not been read


@dataclass(frozen=True)
class Rows:
    """Features, targets and weights of the same rows.

    Attributes:
        y: None where the targets are the features.
    """

    x: Array
    y: Array | None
    weights: Array

    def feeds(self, rows: Array, real: Array, shape: tuple[int, ...]) -> dict[str, jax.Array]:
        """The feeds of these rows, in batches of `shape`. Only `real` rows have weight."""
        weights = np.where(real, self.weights[rows], self.weights.dtype.type(0))
        found = {FEATURES: _taken(self.x, rows), WEIGHTS: weights}
        if self.y is not None:
            found[TARGETS] = _taken(self.y, rows)
        with jax.enable_x64(True):
            return {
                name: jax.device_put(value.reshape(*shape, *value.shape[1:]))
                for name, value in found.items()
            }


def _taken(values: Array, rows: Array) -> Array:
    """Some rows, in memory that JAX uses directly and nobody changes: they are copied once."""
    taken = aligned((len(rows), *values.shape[1:]), values.dtype)
    np.take(values, rows, axis=0, out=taken, mode="clip")  # the default mode copies twice
    return taken


@dataclass(frozen=True)
class Placement:
    """Where and how the programs run: see `gc.compile`."""

    strategy: Strategy | None
    options: CompileOptions | None


@dataclass(frozen=True)
class Course:
    """How long to train.

    Attributes:
        batch: the rows of a batch.
        epochs: the largest number of passes over the data.
        patience: after how many epochs without a better validation loss to stop.
        tolerance: how much lower a validation loss must be to count as better.
    """

    batch: int
    epochs: int
    patience: int = 10
    tolerance: float = 1e-4


@dataclass(frozen=True, eq=False)
class Fitted:
    """What training leaves: it predicts, and training can continue from it.

    Attributes:
        values: every variable of the training graph, hidden state included.
        generator: the state of the random generator that shuffles.
        losses: the mean loss of each epoch.
        validation: the loss of the validation rows after each epoch.
        best_epoch: the number of the epoch whose values are kept, if there is validation.
    """

    networks: Networks
    values: dict[str, Array]
    generator: dict[str, Any]
    losses: tuple[float, ...] = ()
    validation: tuple[float, ...] = ()
    best_epoch: int | None = None


def train(
    fitted: Fitted, rows: Rows, held_out: Rows | None, course: Course, placement: Placement
) -> Fitted:
    """Trains from the values of `fitted`, which stays as it is.

    Args:
        held_out: the rows of the validation; None to train all epochs.

    Raises:
        NumericsError: the loss is not finite.
    """
    program = program_of(fitted.networks.training, placement.strategy, placement.options)
    trainer = _Trainer(program, fitted, rows, course)
    if held_out is None:
        return trainer.run()
    return trainer.run_validated(held_out, placement)


class _Trainer:
    """One training run."""

    def __init__(self, program: Program, fitted: Fitted, rows: Rows, course: Course) -> None:
        self._program, self._fitted, self._rows, self._course = program, fitted, rows, course
        self._random = np.random.default_rng()
        self._random.bit_generator.state = fitted.generator
        self._sizes = _sizes(len(rows.x), course.batch, rows.x[:1].nbytes)
        self._losses: list[Any] = []
        self._state: State | None = None

    def run(self) -> Fitted:
        """Trains all epochs."""
        together = self._together()
        for _ in range(self._course.epochs // together):
            self._train(together)
            if len(self._losses) > _IN_FLIGHT:
                self._read(len(self._losses) - _IN_FLIGHT)
        self._read(len(self._losses))
        return self._result(self._values(), (), None)

    def run_validated(self, held_out: Rows, placement: Placement) -> Fitted:
        """Trains until the validation loss stops falling, and keeps the best values."""
        curve: list[float] = []
        best, best_epoch, values = np.inf, 0, self._fitted.values
        network = self._fitted.networks.inference
        for epoch in range(1, self._course.epochs + 1):
            self._train(1)
            self._read(epoch)
            now = self._values()
            curve.append(mean_loss(network, now, held_out, placement))
            if curve[-1] < best - (self._course.tolerance if np.isfinite(best) else 0):
                best, best_epoch, values = curve[-1], epoch, now
            elif epoch - best_epoch >= self._course.patience:
                break
        return self._result(values, tuple(curve), best_epoch or None)

    def _together(self) -> int:
        """The number of epochs of one call. It divides the number of all epochs, so that every
        call runs the same program."""
        if len(self._sizes) > 1:
            return 1
        most = min(_FEW_STEPS // self._sizes[0][1], self._course.epochs)
        return max((n for n in range(1, most + 1) if self._course.epochs % n == 0), default=1)

    def _train(self, epochs: int) -> None:
        """Trains some epochs, several only if each is one call."""
        orders = [self._random.permutation(len(self._rows.x)) for _ in range(epochs)]
        losses: list[list[Any]] = [[] for _ in orders]
        for start, steps in self._sizes:
            rows, real = zip(*[self._drawn(order, start, steps) for order in orders], strict=True)
            shape = (epochs * steps, self._course.batch)
            feeds = self._rows.feeds(np.concatenate(rows), np.concatenate(real), shape)
            measured = self._call(feeds, epochs * steps)
            for epoch, calls in enumerate(losses):
                calls.append((measured, slice(epoch * steps, (epoch + 1) * steps)))
        self._losses += losses

    def _drawn(self, order: Array, start: int, steps: int) -> tuple[Array, Array]:
        """(the rows of some batches, whether each is not merely added to fill the last one)"""
        size = steps * self._course.batch
        taken = order[start : start + size]
        filled = np.concatenate([taken, np.resize(order, size - len(taken))])
        return filled, np.arange(size) < len(taken)

    def _call(self, feeds: dict[str, jax.Array], steps: int) -> Any:
        shapes = [(role, value.shape[1:]) for role, value in feeds.items()]
        executable = self._program.executable([STEP, LOSS, WEIGHT], shapes, steps)
        if self._state is None:
            self._state = state_of(executable, self._fitted.values)
        named = {self._program.tensor(role): value for role, value in feeds.items()}
        (_, *measured), self._state = executable(self._state, named)
        return measured

    def _read(self, count: int) -> None:
        """Reads the losses of the first `count` epochs, which waits for them."""
        for epoch in range(count):
            if isinstance(self._losses[epoch], float):
                continue
            loss, weight = _joined(self._losses[epoch])
            total = weight.sum()
            self._losses[epoch] = float((loss * weight).sum() / total) if total > 0 else 0.0
            if not np.isfinite(self._losses[epoch]):
                raise NumericsError(
                    f"fit: the loss is {self._losses[epoch]} in epoch {epoch + 1}",
                    hint="scale the features and targets (sklearn.preprocessing.StandardScaler), "
                    "lower learning_rate, or look for the operator with "
                    "options=gc.CompileOptions(check_numerics=True)",
                )

    def _values(self) -> dict[str, Array]:
        return dict(self._fitted.values) if self._state is None else values_of(self._state)

    def _result(
        self, values: dict[str, Array], validation: tuple[float, ...], best: int | None
    ) -> Fitted:
        return replace(
            self._fitted,
            values=values,
            generator=dict(self._random.bit_generator.state),
            losses=self._fitted.losses + tuple(self._losses),
            validation=self._fitted.validation + validation,
            best_epoch=best,
        )


def _joined(calls: list[tuple[list[Any], slice]]) -> list[Array]:
    """Each measured value over some steps of each call."""
    parts = [[np.asarray(value, np.float64)[steps] for value in call] for call, steps in calls]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _sizes(rows: int, batch: int, row_bytes: int) -> list[tuple[int, int]]:
    """(the first row, the number of steps) of each call of an epoch, of two sizes at most."""
    steps = -(-rows // batch)
    most = max(1, min(_MOST_STEPS, _MOST_BYTES // max(1, batch * row_bytes)))
    calls = -(-steps // most)
    counts = [steps // calls + (number < steps % calls) for number in range(calls)]
    starts = np.cumsum([0, *counts])[:-1] * batch
    return [(int(start), count) for start, count in zip(starts, counts, strict=True)]


def mean_loss(
    network: Network, values: dict[str, Array], rows: Rows, placement: Placement
) -> float:
    """The weighted mean loss of rows under `values`."""
    program = program_of(network, placement.strategy, placement.options)
    total = weight = 0.0
    state: State | None = None
    for first, count, size in _blocks(len(rows.x), rows.x[:1].nbytes):
        taken = np.resize(np.arange(first, first + count), size)
        feeds = rows.feeds(taken, np.arange(size) < count, (size,))
        shapes = [(role, value.shape) for role, value in feeds.items()]
        executable = program.executable([LOSS, WEIGHT], shapes)
        state = state or state_of(executable, values)
        named = {program.tensor(role): value for role, value in feeds.items()}
        (loss, part), state = executable(state, named)
        total, weight = total + float(loss) * float(part), weight + float(part)
    return total / weight if weight > 0 else 0.0


def apply(fitted: Fitted, x: Array, fed: str, wanted: str, placement: Placement) -> Array:
    """The `wanted` values (outputs or encoding) for rows that are fed as `fed`.

    Args:
        fed: FEATURES, or ENCODING to decode.
    """
    program = program_of(fitted.networks.inference, placement.strategy, placement.options)
    states = kept_states(fitted)
    parts: list[tuple[jax.Array, int]] = []
    for first, count, size in _blocks(len(x), x[:1].nbytes):
        block = x[first : first + count]
        if count < size:
            block = np.concatenate([block, np.repeat(block[-1:], size - count, axis=0)])
        executable = program.executable([wanted], [(fed, block.shape)])
        state = states.get(executable.layout)
        if state is None:
            state = states[executable.layout] = state_of(executable, fitted.values)
        (value,), _ = executable(state, {program.tensor(fed): block})
        parts.append((value, count))
    return np.concatenate([np.asarray(value)[:count] for value, count in parts])


def _blocks(rows: int, row_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(the first row, the number of rows, that number filled up) of each call that predicts.

    The sizes are powers of two, so there are few programs.
    """
    most = _MOST_ROWS
    while most > LEAST_ROWS and most * row_bytes > _MOST_BYTES:
        most //= 2
    for first in range(0, rows, most):
        count = min(most, rows - first)
        yield first, count, max(LEAST_ROWS, 1 << (count - 1).bit_length())
