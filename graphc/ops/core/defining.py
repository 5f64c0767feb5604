"""Records of operators that a module defines without a function for users, and common attributes.

    TAKE = define(
        "Take(x, indices) -> y",
        precision="follow",
        infer=_infer_take,
        lower=_lower_take,
        doc="The elements of x at the indices.",
    )

The schema reads as a call. `without_gradient`, `rearrangement`, `adjoint_of` and `marker` are for
operators that have more in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack, cast

from graphc.ir.costs import CostRule
from graphc.ir.layouts import LayoutRule
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import REQUIRED, Attr, Effects, OpDef
from graphc.ops.core.cost_rules import free, moves_only


class Fields(TypedDict, total=False):
    """The optional fields of a record; see `OpDef`."""

    attrs: Mapping[str, Attr]
    gradient: Callable[..., Sequence[Tensor | None]] | None
    differentiable: bool
    layout: LayoutRule | None
    cost: CostRule
    effects: Effects
    fold: Callable[..., Any] | None
    commutative: bool
    thread_state: Callable[..., Any] | None
    prune_outputs: Callable[..., Node] | None
    content: Callable[[Node], str | None] | None
    cpu_only: bool


class Record(Fields):
    """All fields that the functions below take."""

    infer: Required[Callable[..., Any]]
    lower: Required[Callable[..., Any]]
    doc: Required[str]


def define(schema: str, *, precision: str, **fields: Unpack[Record]) -> OpDef:
    """The record of an operator. `schema` is "Name(operands) -> results"; the operands and results
    are written as in `OpDef.signature`. The others are the fields of `OpDef`."""
    name, _, rest = schema.partition("(")
    operands, _, results = rest.partition(") ->")
    signature = f"{operands} ->{results}".strip()
    return OpDef(name, signature, precision=precision, **fields)


def without_gradient(schema: str, **fields: Unpack[Record]) -> OpDef:
    """The record of an operator whose derivative is zero or undefined everywhere, and whose
    operands stay as they are in mixed precision. The arguments are those of `define`."""
    fields["differentiable"] = False
    return define(schema, precision="wide", **fields)


def rearrangement(schema: str, **fields: Unpack[Record]) -> OpDef:
    """The record of an operator that moves or copies elements and computes none, so that it works
    in the dtype of its operands. By default it reads all of them and writes its results. The
    arguments are those of `define`."""
    fields.setdefault("cost", moves_only)
    return define(schema, precision="follow", **fields)


def adjoint_of(forward: OpDef, schema: str, **fields: Unpack[Record]) -> OpDef:
    """The record of the operator that computes the adjoints of the operands of `forward`, in its
    precision, and by default with its attributes and its layout rule. The arguments are those of
    `define`."""
    fields.setdefault("attrs", forward.attrs)
    fields.setdefault("layout", forward.layout)
    return define(schema, precision=cast("str", forward.precision), **fields)


def _first(ctx: object, x: Any, *others: object, **attrs: object) -> Any:
    return x


def marker(
    schema: str, *, doc: str, lower: Callable[..., Any] = _first, **fields: Unpack[Fields]
) -> OpDef:
    """The record of an operator whose result is its first operand: it is there for passes or for
    XLA, and costs nothing. The arguments are those of `define`."""
    fields["cost"] = free
    return define(schema, precision="follow", infer=_first, lower=lower, doc=doc, **fields)


def at_least(least: int, must: str, *, default: int | None = REQUIRED, doc: str = "") -> Attr:
    """An attribute that is an int of at least `least`; `must` and the others as in `Attr`."""
    return Attr("int", default, lambda value: value >= least, must, doc)


def one_of(*words: str, default: str | None = REQUIRED, doc: str = "") -> Attr:
    """An attribute that is one of these words."""
    *others, last = [f'"{word}"' for word in words]
    return Attr("str", default, lambda v: v in words, f"be {', '.join(others)} or {last}", doc)
