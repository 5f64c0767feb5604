"""What the graphs of an estimator are built from, and the checks of what the user's functions
return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import optax

from graphc.errors import ArgumentError, AttributeValueError, DTypeError, GraphcError, ShapeError
from graphc.ir.dtypes import is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.source import Source
from graphc.ops.core.emit import convert

TRAINING = "training"  # the parameter by which a build function asks which graph it builds


@dataclass(frozen=True)
class Blueprint:
    """Everything that the two graphs of an estimator depend on.

    Attributes:
        estimator: the name of the class, for errors.
        build: gives the outputs, or the encoding of a transformer.
        decode: gives the reconstruction from the encoding; None for the other estimators.
        loss: gives one loss for each row, from outputs and targets.
        parameters: keyword arguments of `build`, and those of `decode` that it has.
        optimizer: the transformation of optax.
        dtype: of the features and weights.
        features: the number of columns of the input.
        outputs: what `build` gets as its second argument.
        target: dtype and columns of the targets: None columns for a vector of class numbers; None
            where the targets are the features themselves.
    """

    estimator: str
    build: Callable[..., Tensor]
    decode: Callable[..., Tensor] | None
    loss: Callable[[Tensor, Tensor], Tensor]
    parameters: Mapping[str, Any]
    optimizer: optax.GradientTransformation
    dtype: str
    features: int
    outputs: int
    target: tuple[str, int | None] | None

    def encoded(self, x: Tensor, graph: Graph, training: bool) -> Tensor:
        """What `build` returns for the features, checked."""
        return self._called("build", self.build, x, self.outputs, graph, training)

    def decoded(self, encoding: Tensor, graph: Graph, training: bool) -> Tensor:
        """What `decode` returns for the encoding, checked; the encoding itself without it."""
        if self.decode is None:
            return encoding
        return self._called("decode", self.decode, encoding, self.features, graph, training)

    def _called(
        self, role: str, function: Any, x: Tensor, columns: int, graph: Graph, training: bool
    ) -> Tensor:
        given = dict(self.parameters)
        accepted = _accepted(function)
        if accepted is not None:
            if role == "decode":
                given = {name: value for name, value in given.items() if name in accepted}
            if TRAINING in accepted:
                given[TRAINING] = training
        self._check_arguments(role, function, x, columns, given)
        with graph:
            result = function(x, columns, **given)
        return self._checked(role, function, result, columns, graph)

    def _check_arguments(
        self, role: str, function: Any, x: Tensor, columns: int, given: Mapping[str, Any]
    ) -> None:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # a builtin or such: calling it will tell
            return
        try:
            signature.bind(x, columns, **given)
        except TypeError as error:
            raise ArgumentError(
                f"{self.estimator}: {role} {_name(function)} does not take these arguments",
                details=[
                    f"it is called as {role}(x, outputs"
                    + "".join(f", {name}=..." for name in given)
                    + ")",
                    f"it is defined as {_name(function)}{signature}",
                    str(error),
                ],
                source=source_of(function),
                hint="name its parameters after the keys of `parameters`, or change the keys",
            ) from None

    def _checked(
        self, role: str, function: Any, result: object, columns: int, graph: Graph
    ) -> Tensor:
        if not isinstance(result, Tensor):
            self._refuse(
                AttributeValueError, role, function,
                f"returned {type(result).__name__}, expected a tensor",
                f"end it with `return` and a tensor of shape [rows, {columns}]",
            )  # fmt: skip
        if graph.find_producer(result) is None:
            self._refuse(
                AttributeValueError, role, function, "returned a tensor of another graph",
                "create the tensors and layers inside the function: it is called several times",
            )  # fmt: skip
        if not is_floating(result.dtype):
            self._refuse(
                DTypeError, role, function,
                f"returned a tensor of {result.dtype}, expected a floating one",
                "return the values before argmax or rounding; gc.cast converts",
            )  # fmt: skip
        shape = result.shape
        if len(shape) != 2 or shape[1] != columns or isinstance(shape[0], int):
            self._refuse(
                ShapeError, role, function,
                f"returned the shape {_shape(shape)}, expected [rows, {columns}]",
                f"end with gc.nn.Dense({_wanted(role)}); if an operator has fixed the number of "
                "rows, reshape with -1 for them",
            )  # fmt: skip
        return result

    def _refuse(
        self, error: type[GraphcError], role: str, function: Any, what: str, hint: str
    ) -> NoReturn:
        raise error(
            f"{self.estimator}: {role} {_name(function)} {what}",
            source=source_of(function),
            hint=hint,
        )

    def row_losses(self, outputs: Tensor, targets: Tensor, graph: Graph) -> Tensor:
        """One loss for each row, checked."""
        with graph:
            result: object = self.loss(outputs, targets)
            rows = convert(result) if isinstance(result, Tensor) else None
        if rows is None or len(rows.shape) != 1 or not is_floating(rows.dtype):
            found = type(result).__name__ if rows is None else f"{rows.dtype}{_shape(rows.shape)}"
            raise ShapeError(
                f"{self.estimator}: loss {_name(self.loss)} returned {found}, expected one "
                "floating value for each row",
                source=source_of(self.loss),
                hint="take the mean over the columns only: gc.reduce_mean(errors, axis=1)",
            )
        return rows


def source_of(function: Any) -> Source | None:
    """The line on which a Python function is defined."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else Source(code.co_filename, code.co_firstlineno)


def _accepted(function: Any) -> set[str] | None:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _shape(shape: Any) -> str:
    return f"[{', '.join(str(dim) for dim in shape)}]"


def _wanted(role: str) -> str:
    return "outputs" if role == "build" else "outputs)(...), the columns of the features"
