"""Moving averages of parameters, stored in addition to the parameters for evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import jax
import numpy as np

from graphc.build.initializers import Zeros
from graphc.build.variable_definition import variable
from graphc.errors import AttributeValueError, DTypeError, GraphError, ShapeError, UnknownNameError
from graphc.ir.dtypes import FLOAT32, DType, is_floating, is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import AMBIENT, absolute_scope, building, exact_device
from graphc.ir.variable import Variable
from graphc.ops.core.emit import constant, convert, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import minimum
from graphc.ops.structure.state import group
from graphc.typing import TensorLike


class HoldsValues(Protocol):
    """An object that holds the values of variables, such as a `gc.Session`."""

    def get(self, name: Variable, /) -> jax.Array:
        """The value of a variable."""

    def set_all(self, values: Mapping[Variable, Any], /) -> None:
        """Sets the values of several variables."""


class MovingAverages:
    """The result of `moving_averages`: the averages of variables, and the node that updates them.

    Attributes:
        update: the node that updates the averages; fetching it returns None.
        variables: the variables that are averaged.

    Examples:
        >>> w = gc.variable(0.0, name="w")
        >>> averages = gc.train.moving_averages([w], decay=0.5)
        >>> session = gc.Session(graph)
        >>> session.set(w, 8.0)
        >>> session.run(averages.update)
        >>> with averages.swapped(session):
        ...     print(session.get(w))
        4.0
        >>> session.get(w)
        Array(8., dtype=float32)
    """

    def __init__(self, update: Node, averages: Mapping[Variable, Variable]) -> None:
        self.update = update
        self.variables = tuple(averages)
        self._averages = dict(averages)

    def average(self, variable: Variable) -> Variable:
        """The variable that holds the average of `variable`, to read, fetch and save.

        Raises:
            UnknownNameError: `variable` is not averaged.

        Examples:
            >>> w = gc.variable(8.0, name="w")
            >>> averages = gc.train.moving_averages([w], decay=0.5)
            >>> averages.average(w)
            <Variable w/average f32[]>
        """
        found = self._averages.get(variable)
        if found is None:
            name = getattr(variable, "name", variable)
            raise UnknownNameError.here(
                f"no moving average is kept of {name!r}",
                details=[v.name for v in self.variables],
                hint="average one of these, or pass it to gc.train.moving_averages",
            )
        return found

    @contextmanager
    def swapped(self, session: HoldsValues) -> Iterator[None]:
        """In this context, the session's variables have the values of their averages.

        It is meant for evaluation. Afterwards the variables have their earlier values again,
        whatever was assigned in the meantime.

        Raises:
            StateError: the session is closed or broken.

        Examples:
            >>> w = gc.variable(8.0, name="w")
            >>> averages = gc.train.moving_averages([w], decay=0.5)
            >>> y, session = w + 1, gc.Session(graph)
            >>> session.set(averages.average(w), 2.0)
            >>> with averages.swapped(session):
            ...     session.run(y)
            Array(3., dtype=float32)
        """
        before = {v: session.get(v) for v in self._averages}
        try:
            session.set_all({v: session.get(average) for v, average in self._averages.items()})
            yield
        finally:
            try:
                session.set_all(before)
            except BaseException:  # after an interrupt, the parameters must not be lost
                session.set_all(before)
                raise


def moving_averages(
    variables: Iterable[Variable] | None = None,
    decay: TensorLike = 0.999,
    *,
    num_updates: TensorLike | None = None,
    zero_debias: bool = False,
    name: str = "average",
) -> MovingAverages:
    """Creates moving averages of variables: `average = decay * average + (1 - decay) * value`.

    A model with averaged parameters often gives better results than one with the last parameters.
    The averaged values are those after the assignments that precede this call in the graph. So call
    it after `gc.minimize`, and fetch `gc.group(train, averages.update)`. Under a strategy, averages
    are replicated on each device, as the variables are.

    Args:
        variables: floating or complex; by default all trainable variables of the graph.
        decay: a number in [0, 1), or a floating scalar that the graph computes.
        num_updates: a scalar or variable that counts the steps, n. The decay is then
            min(decay, (1 + n) / (10 + n)), so that early averages follow the values faster.
        zero_debias: with True, an average is zero before the first update, and then the average of
            the values so far, with weights that add up to 1. With False, averages start at the
            values of the variables, and these keep a weight.
        name: an average is called `<variable>/<name>`. It is not trainable, and has the variable's
            type; narrow floats are averaged in float32.

    Returns:
        An object with `update`, the node that updates the averages; `average(variable)`, the
        variable that holds an average; and `swapped(session)`, a context in which the session's
        variables have the values of their averages.

    Raises:
        AttributeValueError: the decay is out of range.
        DTypeError: a variable is an integer, or the decay is not floating.
        GraphError: there is nothing to average, or no graph is being built.
        GraphFinalizedError: the graph has run.

    Sources: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992;
    tf.compat.v1.train.ExponentialMovingAverage; for `zero_debias`, Kingma and Ba,
    arXiv:1412.6980, section 3.

    Examples:
        >>> w = gc.variable(0.0, name="w")
        >>> step = w.assign_add(8.0)
        >>> averages = gc.train.moving_averages(decay=0.75)
        >>> run([step, averages.update, averages.average(w)])
        [Array(8., dtype=float32), None, Array(2., dtype=float32)]
    """
    if variables is not None and not isinstance(variables, Iterable):
        raise AttributeValueError.here(
            f"moving_averages: variables must be a list of variables, got {variables!r}",
            hint="pass a decay by its name: moving_averages(decay=0.99)",
        )
    chosen = list(dict.fromkeys(_trainable() if variables is None else variables))
    graph = _checked(chosen)
    with building(graph), absolute_scope(f"{graph.unique_name(name)}/"):
        share = 1 - _decay(decay, num_updates, _widest(chosen))
        averages = {v: _average_of(v, name, zero_debias) for v in chosen}
        update = group(_assigned(averages, share, zero_debias), name="update")
    return MovingAverages(update, averages)


def _assigned(averages: Mapping[Variable, Variable], share: Tensor, debias: bool) -> list[Tensor]:
    """The assignments of one update, in which the current values have the weight `share`."""
    assigned: list[Tensor] = []
    if debias:
        weight = variable(np.zeros((), share.dtype), trainable=False, name="weight")
        total = weight.assign(weight.read() + (1 - weight.read()) * share)
        assigned.append(total)
        share = share / total
    for each, average in averages.items():
        with exact_device(each.device):
            dtype, old = average.type.dtype, average.read()
            new = old + (to_dtype(each.read(), dtype) - old) * to_dtype(share, dtype)
            assigned.append(average.assign(new))
    return assigned


def _trainable() -> list[Variable]:
    graph = AMBIENT.graphs[-1].root if AMBIENT.graphs else None
    return [] if graph is None else [v for v in graph.variables.values() if v.trainable]


def _checked(variables: list[Any]) -> Graph:
    """The graph in which the averages are created."""
    for each in variables:
        if not isinstance(each, Variable):
            raise GraphError.here(
                f"moving_averages: {each!r} is not a variable",
                hint="pass variables, such as layer.variables, or gc.trainable_variables()",
            )
        if not is_inexact(each.type.dtype):
            raise DTypeError.here(
                f"moving_averages: {each.name!r} must be floating or complex, got {each.type}",
                hint="leave it out of the variables",
            )
    if not variables or not AMBIENT.graphs:
        raise GraphError.here(
            "moving_averages: there are no variables to average"
            if AMBIENT.graphs
            else "moving_averages: no graph is being built",
            hint="call it inside `with graph:`, after the variables are made",
        )
    return AMBIENT.graphs[-1]


def _average_of(each: Variable, name: str, zero_debias: bool) -> Variable:
    """The variable for the average of another variable, on the same device."""
    with absolute_scope(""), exact_device(each.device):
        dtype = wide(each.type.dtype)
        initial = Zeros() if zero_debias else each
        return variable(
            initial, shape=each.type.shape, dtype=dtype, trainable=False, name=f"{each.name}/{name}"
        )


def _widest(variables: Iterable[Variable]) -> DType:
    """The dtype for computing decays: at least float32, in which 0.999 and 1 differ."""
    double = any(np.finfo(wide(v.type.dtype)).bits == 64 for v in variables)
    return np.dtype(np.float64) if double else FLOAT32


def _decay(decay: Any, num_updates: Any, dtype: DType) -> Tensor:
    """The decay of this run.

    Raises:
        AttributeValueError: it is out of range.
        DTypeError, ShapeError: it is a tensor, but not a floating scalar.
    """
    if isinstance(decay, (int, float)):
        if not 0 <= decay < 1:
            raise AttributeValueError.here(
                f"moving_averages: decay must be in [0, 1), got {decay!r}",
                hint="0.99 averages over about 100 steps, 0.999 over 1000",
            )
        result = constant(decay, dtype)
    else:
        result = convert(decay)
        if not is_floating(result.dtype) or result.shape != ():
            error = ShapeError if is_floating(result.dtype) else DTypeError
            raise error.here(f"moving_averages: decay must be a floating scalar, got {result.type}")
        result = to_dtype(result, dtype)
    if num_updates is None:
        return result
    n = to_dtype(convert(num_updates), dtype)
    return minimum(result, (1 + n) / (10 + n))
