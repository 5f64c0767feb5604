"""What all streaming metrics share: accumulators, the node that adds to them, and the reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graphc.build.variable_definition import variable
from graphc.errors import DTypeError, ShapeError
from graphc.ir.dtypes import as_dtype, is_complex, is_floating
from graphc.ir.members import Helpful
from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import absolute_scope, current_graph
from graphc.ir.variable import Variable
from graphc.ops.arrays.creation import ones_like
from graphc.ops.core.emit import cast, constant, convert
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.structure.state import group
from graphc.typing import TensorLike

COUNT = as_dtype("int64")
SUM = as_dtype("float64")
COLLECTION = "metrics"


class Metric(Helpful):
    """A measurement over many batches: its state is variables of the graph.

    The variables are not trainable, belong to the collection "metrics", and are saved with the
    others. Counts are int64 and sums are float64, so counts beyond 2**24 are exact.

    Attributes:
        update: the node that adds a batch; fetching it gives None.
        value: the value over all batches so far, float64. In a run that also fetches `update`, it
            includes that batch.
        reset: the node that sets the state to zero; fetching it gives None.
        variables: the variables that hold the state.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> mean, session = gc.metrics.Mean(x), gc.Session(graph)
        >>> for batch in ([1.0, 2.0], [6.0]):
        ...     session.run(mean.update, {x: batch})
        >>> session.run(mean.value)
        Array(3., dtype=float64)
        >>> session.run([mean.reset])
        [None]
    """

    update: Node
    value: Tensor
    reset: Node
    variables: tuple[Variable, ...]

    def _build(
        self,
        name: str,
        batch: Callable[[], Mapping[str, Tensor]],
        value: Callable[[Mapping[str, Tensor]], Tensor],
    ) -> None:
        """Builds the nodes.

        Args:
            batch: gives what one batch adds to each accumulator.
            value: computes the value from the accumulators.
        """
        graph = current_graph()
        with absolute_scope(f"{graph.unique_name(name)}/"):
            added = batch()
            state = {
                key: variable(
                    np.zeros(_sizes(each), each.dtype),
                    trainable=False,
                    name=key,
                    collections=(COLLECTION,),
                )
                for key, each in added.items()
            }
            self.variables = tuple(state.values())
            sums = [state[key].assign_add(each) for key, each in added.items()]
            self.update = group(*sums, name="update")
            # These reads follow the assignments above, so the value includes the current batch.
            self.value = value({key: each.read() for key, each in state.items()})
            zeros = [v.assign(np.zeros(v.type.shape, v.type.dtype)) for v in self.variables]
            self.reset = group(*zeros, name="reset")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.value.name}>"


def _sizes(added: Tensor) -> tuple[int, ...]:
    return tuple(size for size in added.shape if isinstance(size, int))  # none is unknown


def ratio(part: Tensor, whole: Tensor, otherwise: float) -> Tensor:
    """part / whole in float64; `otherwise` where the whole is 0."""
    part, whole = cast(part, SUM), cast(whole, SUM)
    empty = equal(whole, constant(0, SUM))
    divided = part / where(empty, constant(1, SUM), whole)
    return where(empty, constant(otherwise, SUM), divided)


def weighting(weights: TensorLike | None, like: Tensor, what: str) -> Tensor:
    """The weight of each example of `like`: int64 of bools and integers, float64 of floats.

    Raises:
        DTypeError: the weights are complex.
        ShapeError: their shape is not that of `like`.
    """
    if weights is None:
        return ones_like(like, COUNT)
    given = convert(weights)
    if is_complex(given.dtype):
        raise DTypeError.here(
            f"{what}: weights must be real, got {given.type}", hint="give bools, integers or floats"
        )
    same_shape(given, like, f"{what}: weights")
    return cast(given, SUM if is_floating(given.dtype) else COUNT)


def same_shape(given: Tensor, like: Tensor, what: str) -> None:
    """Refuses a tensor whose shape is not that of another, so that nothing is broadcast.

    Raises:
        ShapeError: the ranks or the known sizes differ.
    """
    pairs = zip(given.shape, like.shape, strict=False)
    unequal = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if len(given.shape) != len(like.shape) or unequal:
        raise ShapeError.here(
            f"{what} must have the shape of {like.type}, got {given.type}",
            hint="give one value for each example, or reshape it",
        )
