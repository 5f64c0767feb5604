"""Operators declared by the functions that users call.

    @elementwise_operator("Tanh", lax.tanh, derivative=lambda dy, x, y: dy * (1.0 - square(y)))
    def tanh(x: Any, *, name: str | None = None) -> Given:
        '''The hyperbolic tangent, elementwise; integers give float32.'''
        return promote_inexact(x)

The body converts the arguments to the operands of the node. The decorator creates two things:
the record of the operator, whose `doc` is the docstring, and the function that adds the node,
`(x, *, name=None) -> Tensor`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, Unpack, cast

from graphc.ir.node import EMPTY, Tensor
from graphc.ir.opdef import Attr, OpDef
from graphc.ops.core.broadcasting import (
    align,
    broadcast_all,
    infer_broadcast,
    infer_floating,
    infer_inexact,
    infer_numeric,
    infer_ordered,
    infer_real,
    unary_gradient,
)
from graphc.ops.core.defining import Fields
from graphc.ops.core.emit import emit_one
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import in_wider


class Operands:
    """The operands and attributes of a node to add. Used where the node has attributes."""

    __slots__ = ("attrs", "tensors")

    def __init__(self, *tensors: Tensor, **attrs: Any) -> None:
        self.tensors = tensors
        self.attrs: Mapping[str, Any] = attrs


# The return value of a declared function's body: the operands of the node, or a finished result
# if no node is needed.
Given = Sequence[Tensor] | Operands | Tensor
P = ParamSpec("P")


class Declaration(Protocol):
    """A decorator that keeps the parameters of the decorated function."""

    def __call__(self, body: Callable[P, Given], /) -> Callable[P, Tensor]:
        """The function that users call."""


_BY_FUNCTION: dict[Callable[..., Any], OpDef] = {}
_BY_MODULE: dict[str, list[OpDef]] = {}


def record(function: Callable[..., Any]) -> OpDef:
    """The record of the operator that `function` declares."""
    return _BY_FUNCTION[inspect.unwrap(function, stop=_BY_FUNCTION.__contains__)]


def declared(module: str) -> tuple[OpDef, ...]:
    """The records that the functions of a module declare, in definition order."""
    return tuple(_BY_MODULE[module])


def operator(
    name: str,
    signature: str = "",
    *,
    infer: Callable[..., Any],
    lower: Callable[..., Any],
    precision: str,
    dtypes: str = "",
    **fields: Unpack[Fields],
) -> Declaration:
    """Declares an operator with one result. `name`, `infer` and the others go into its record.

    Args:
        signature: the default lists the parameters that are neither attributes nor keyword-only.
            The result is called y, or z if an operand is already called y.
        dtypes: the last sentence of the record's `doc`. It states the allowed operand dtypes.
    """

    def declare(body: Callable[P, Given]) -> Callable[P, Tensor]:
        shown = inspect.signature(body)
        op = OpDef(
            name=name,
            signature=signature or _signature(shown, fields.get("attrs", EMPTY)),
            infer=infer,
            lower=lower,
            precision=precision,
            doc=_doc(body, dtypes),
            **fields,
        )

        @functools.wraps(body)
        def function(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            given = body(*args, **kwargs)
            if isinstance(given, Tensor):
                return given
            node_name = cast("str | None", kwargs.get("name"))
            if isinstance(given, Operands):
                return emit_one(op, given.tensors, node_name, **given.attrs)
            return emit_one(op, given, node_name)

        # Use the class, not its name: the declaring module may not import `Tensor`.
        function.__annotations__ = {**body.__annotations__, "return": Tensor}
        function.__signature__ = shown.replace(return_annotation="Tensor")  # type: ignore[attr-defined]
        _BY_FUNCTION[function] = op
        _BY_MODULE.setdefault(body.__module__, []).append(op)
        return function

    return declare


def elementwise_operator(
    name: str,
    function: Callable[..., Any] | None = None,
    signature: str = "",
    *,
    infer: Callable[..., Any] = infer_inexact,
    lower: Callable[..., Any] | None = None,
    widen: bool = False,
    derivative: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    precision: str = "wide",
    dtypes: str = "",
    **fields: Unpack[Fields],
) -> Declaration:
    """Declares an operator that works element by element, with broadcasting.

    Args:
        function: takes the JAX values of the operands, all with the same rank. Pass `lower`
            instead if the operator needs more.
        infer: may be a rule that takes no attributes.
        widen: whether to compute in a wider dtype where XLA does not support the operand's
            dtype; see `in_wider`.
        derivative: the gradient of a function of one operand, `(dy, x, y) -> adjoint of x`.
        dtypes: as in `operator`. The common inference rules provide a default.
    """
    lowering = lower or _lowering(cast("Callable[..., Any]", function))
    fields.setdefault("layout", elementwise)
    if derivative is not None:
        fields["gradient"] = unary_gradient(derivative)
    return operator(
        name,
        signature,
        infer=_without_attributes(infer) if fields.get("attrs") and infer in _DTYPES else infer,
        lower=in_wider(lowering) if widen else lowering,
        precision=precision,
        dtypes=dtypes or _DTYPES.get(infer, ""),
        **fields,
    )


_DTYPES: Mapping[Callable[..., Any], str] = {
    infer_broadcast: "All dtypes.",
    infer_numeric: "Numeric dtypes.",
    infer_ordered: "Real dtypes and bool.",
    infer_real: "Integer and floating dtypes.",
    infer_inexact: "Floating and complex dtypes.",
    infer_floating: "Floating dtypes.",
}


def _lowering(function: Callable[..., Any]) -> Callable[..., Any]:
    def lower(ctx: Any, *values: Any, **attrs: Any) -> Any:
        if len(values) == 1:
            return function(*values, **attrs)
        if len(values) == 2:
            return function(*align(*values), **attrs)
        return function(*broadcast_all(*values), **attrs)

    return lower


def _without_attributes(infer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ctx, *operands, **attrs: infer(ctx, *operands)


def _signature(shown: inspect.Signature, attrs: Mapping[str, Attr]) -> str:
    operands = [
        parameter.name
        for parameter in shown.parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.name not in attrs
    ]
    return f"{', '.join(operands)} -> {'z' if 'y' in operands else 'y'}"


_SECTIONS = ("Args:", "Returns:", "Raises:", "Examples:")


def _doc(function: Callable[..., Any], dtypes: str) -> str:
    """The docstring without its sections. The allowed operand dtypes are added if the docstring
    does not state them."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    kept = [" ".join(part.split()) for part in paragraphs if not part.startswith(_SECTIONS)]
    text = " ".join(kept)
    if dtypes.rstrip(".").lower() in text.lower():
        return text
    text, source, where = text.partition(" Source: ")
    return f"{text} {dtypes}{source}{where}"
