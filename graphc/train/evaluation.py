"""`evaluate` and `predict`: one pass over batches, without training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np

from graphc.data.core.checks import check_count
from graphc.errors import AttributeValueError, FeedError, ShapeError
from graphc.ir.calls import explained
from graphc.ir.capture import Fetch
from graphc.ir.dims import symbols_of
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.variable import Variable
from graphc.runtime.feeds.batches import checked_count
from graphc.runtime.feeds.fetches import FetchNest, resolve_feeds
from graphc.runtime.session import Session
from graphc.typing import ArrayTree, Feeds, Fetches


class Streaming(Protocol):
    """A metric that accumulates in the graph's variables, such as those of `gc.metrics`."""

    @property
    def update(self) -> Tensor | Node:
        """Adds a batch."""

    @property
    def value(self) -> Tensor:
        """The accumulated value."""

    @property
    def reset(self) -> Tensor | Node:
        """Resets the accumulated value."""


Metric: TypeAlias = Tensor | Variable | str | Streaming


def is_streaming(metric: Metric) -> TypeGuard[Streaming]:
    """Whether a metric accumulates in variables."""
    return not isinstance(metric, (Tensor, Variable, str)) and hasattr(metric, "update")


@dataclass(frozen=True)
class Validation:
    """The validation of `fit`: its batches, its metrics and its schedule.

    Attributes:
        batches: feeds, which can be iterated over again at each validation.
        metrics: as for `evaluate`.
        every_steps: validate after each multiple of this number of steps.
        every_epochs: validate after each multiple of this number of epochs. Without either, `fit`
            validates after each epoch and at the end.
        steps: how many batches to use each time; None: all of them.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> gc.train.Validation([{"x": [1.0]}], {"mean": gc.reduce_mean(x)}, every_steps=10).steps
    """

    batches: Iterable[Feeds]
    metrics: Mapping[str, Metric]
    every_steps: int | None = None
    every_epochs: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("every_steps", "every_epochs", "steps"):
            value = getattr(self, name)
            if value is not None:
                check_count(f"Validation: {name}", value, 1)

    def is_due_at(self, step: int) -> bool:
        """Whether to validate after this step.

        Examples:
            >>> gc.train.Validation([], {}, every_steps=10).is_due_at(20)
            True
        """
        return self.every_steps is not None and step > 0 and step % self.every_steps == 0

    def is_due_in(self, epoch: int) -> bool:
        """Whether to validate when this number of epochs is complete.

        Examples:
            >>> gc.train.Validation([], {}, every_epochs=2).is_due_in(3)
            False
        """
        return self.is_at_end or (self.every_epochs is not None and not epoch % self.every_epochs)

    @property
    def figures(self) -> list[str]:
        """The names of the figures in loggers.

        Examples:
            >>> gc.train.Validation([], {"loss": "loss:0"}).figures
            ['validation/loss']
        """
        return [f"validation/{name}" for name in self.metrics]

    @property
    def is_at_end(self) -> bool:
        """Whether to validate at the end of each epoch and of the loop.

        Examples:
            >>> gc.train.Validation([], {}).is_at_end
            True
        """
        return self.every_steps is None and self.every_epochs is None


@explained
def evaluate(
    session: Session,
    batches: Iterable[Feeds],
    metrics: Mapping[str, Metric],
    *,
    steps: int | None = None,
) -> dict[str, float]:
    """The metrics over all batches.

    A scalar tensor is averaged over the batches, each weighted by its number of examples (the
    leading axis of the placeholders whose first axis may have any size). This is exact for means
    over examples, but not for other values, such as a root of a mean: use `gc.metrics` for those.

    Args:
        session: the session.
        batches: the feeds of each batch.
        metrics: name -> a scalar tensor, or a metric of `gc.metrics`.
        steps: how many batches to use; None: all of them.

    Raises:
        FeedError: there are no batches, or no examples in them.
        AttributeValueError: a metric is not a scalar; `metrics` is no dict, or `steps` is no number
            of batches.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> batches = [{"x": [1.0, 2.0]}, {"x": [6.0]}]
        >>> gc.train.evaluate(gc.Session(graph), batches, {"mean": gc.reduce_mean(x)})
        {'mean': 3.0}
    """
    if not isinstance(metrics, Mapping):
        raise AttributeValueError.here(
            f"evaluate: metrics must be a dict, got {type(metrics).__name__}", hint='{"loss": loss}'
        )
    plain = {name: m for name, m in metrics.items() if not is_streaming(m)}
    streaming = {name: m for name, m in metrics.items() if is_streaming(m)}
    if streaming:
        session.run([metric.reset for metric in streaming.values()])
    fetches = [*plain.values(), *(metric.update for metric in streaming.values())]
    sums, total = np.zeros(len(plain)), 0
    for feeds in _taken(batches, steps, "evaluate"):
        examples = _examples(session.graph, feeds)
        values = session.run(fetches, feeds)[: len(plain)]
        if examples:  # the mean of an empty batch is NaN
            numbers = [_number(n, v) for n, v in zip(plain, values, strict=True)]
            sums += examples * np.array(numbers)
            total += examples
    if not total:
        raise FeedError.here("evaluate: the batches have no examples")
    found = dict(zip(plain, (sums / total).tolist(), strict=True))
    if streaming:
        finals = session.run([metric.value for metric in streaming.values()])
        found |= {n: _number(n, v) for n, v in zip(streaming, finals, strict=True)}
    return {name: found[name] for name in metrics}


@explained
def predict(
    session: Session, batches: Iterable[Feeds], outputs: Fetches, *, steps: int | None = None
) -> ArrayTree:
    """The outputs for all batches, joined along the first axis.

    Args:
        session: the session.
        batches: the feeds of each batch.
        outputs: a tensor, or a nest of them, each with the examples on its first axis.
        steps: how many batches to use; None: all of them.

    Returns:
        NumPy arrays in the nest of `outputs`; None for operations.

    Raises:
        FeedError: there are no batches.
        AttributeValueError: `steps` is no number of batches, or an output has no axis of examples.
        ShapeError: the outputs of the batches differ along another axis.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> gc.train.predict(gc.Session(graph), [{"x": [1.0, 2.0]}, {"x": [3.0]}], x * 2)
        array([2., 4., 6.], dtype=float32)
    """
    nest, parts = FetchNest(session.graph, outputs), list[list[Any]]()
    for feeds in _taken(batches, steps, "predict"):
        if not parts:
            _check_rows(session.graph, nest.distinct, feeds)
        values = session.run(nest.distinct, feeds)
        parts.append([v if v is None else np.asarray(v) for v in values])  # frees the device
    columns = zip(nest.distinct, zip(*parts, strict=True), strict=True)
    return nest.rebuild([_joined(output, arrays) for output, arrays in columns])


def _check_rows(graph: Graph, outputs: Iterable[Fetch], feeds: Feeds) -> None:
    """Raises an error if an output has no axis of examples: its first axis must depend on the first
    axis of a feed, if that of any feed may have any size."""
    first = [t.shape[0] for t in resolve_feeds(graph, feeds) if t.ndim]
    rows = frozenset[str]().union(*map(symbols_of, first))
    for output in outputs:
        if isinstance(output, Node):
            continue  # an operation has no value
        shape = output.shape
        if not shape or (rows and not symbols_of(shape[0]) & rows):
            raise AttributeValueError.here(
                f"predict: output {output.name!r} has no axis of examples",
                details=[f"its shape is ({', '.join(map(str, shape))})"],
                hint="its first axis must have the rows of the batch; gc.train.evaluate gives the "
                "mean of a scalar over all batches",
            )


def _joined(output: Fetch, arrays: Sequence[Any]) -> Array | None:
    """The values of all batches; None for an operation."""
    if isinstance(output, Node):
        return None
    for number, array in enumerate(arrays):
        if array.shape[1:] != arrays[0].shape[1:]:
            raise ShapeError.here(
                f"predict: the values of {output.name!r} cannot be joined",
                details=[f"batch 0 has {arrays[0].shape}, batch {number} has {array.shape}"],
                hint="feed batches of the same sizes, or join the results of session.run yourself",
            )
    return np.concatenate(arrays)


def _taken(batches: Any, steps: int | None, who: str) -> Iterator[Feeds]:
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping):
        raise FeedError.here(
            f"{who}: batches must be an iterable of feeds, got {type(batches).__name__}",
            hint="a pipeline, or a list: [{x: features}]",
        )
    if steps is not None:
        steps = checked_count(steps, f"{who}: steps")
    feeds = None
    for feeds in islice(batches, steps):
        yield feeds
    if feeds is None:
        raise FeedError.here(
            f"{who}: there are no batches",
            hint="an iterator can be read once; pass a list or a pipeline",
        )


def _examples(graph: Graph, feeds: Feeds) -> int:
    """The number of examples in a batch: the size of the leading axis of the feeds that may have
    any number of rows. Without such feeds, the largest leading size; 1 if no feed has an axis."""
    shapes = [(tensor.shape, np.shape(v)) for tensor, v in resolve_feeds(graph, feeds).items()]
    rows = [(declared[0], given[0]) for declared, given in shapes if declared and given]
    open_ = [given for size, given in rows if not isinstance(size, int)]
    return max(open_ or [given for _, given in rows], default=1)


def _number(name: str, value: Any) -> float:
    if np.size(value) != 1:
        raise AttributeValueError.here(
            f"evaluate: metric {name!r} must be a scalar, got shape {tuple(value.shape)}",
            hint="gc.reduce_mean(...) of it",
        )
    return float(np.asarray(value).reshape(()))
