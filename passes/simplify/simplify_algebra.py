"""Simplify algebra: removes arithmetic without effect, or replaces it by a cheaper exact
equivalent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from graphc.ir.dtypes import (
    DType,
    int_range,
    is_complex,
    is_floating,
    is_inexact,
    is_integer,
    kind_of,
)
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.core.emit import CAST
from graphc.ops.elementwise.arithmetic import (
    ABS,
    ADD,
    DIVIDE,
    FLOOR_DIVIDE,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    NEGATIVE,
    SUBTRACT,
)
from graphc.ops.elementwise.comparison import LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, WHERE
from graphc.ops.elementwise.complex_parts import COMPLEX, CONJ, IMAG, REAL
from graphc.ops.elementwise.powers import INTEGER_POWER, POWER, RECIPROCAL, SQUARE
from graphc.ops.elementwise.rounding import CEIL, FLOOR, ROUND
from graphc.ops.structure.state import IDENTITY, STOP_GRADIENT
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.lossless import may_skip
from graphc.passes.core.rules import Answer, Rewriter, Rule, change, first_operand, simplify


@dataclass(frozen=True)
class SimplifyAlgebra(Pass):
    """Simplifies x + 0, x * 1, --x, x + -y, x ** 2, where(true, x, y), casts there and back,
    identities.

    XLA knows these too. Gradients contain hundreds of them (adjoints that are ones and zeros,
    negations, casts), and a removed node is not traced, lowered or printed. Some also separate
    nodes that are then equal or constant.

    Must not: change a rounding. x * 0 is 0 for integers only (a NaN or infinity makes it NaN), (x +
    1) + 2 is x + 3 for integers only, x / 2 / 3 stays. XLA makes the same two exceptions: the sign
    of a zero result may change (x + 0 is x, and -0.0 + 0.0 would be 0.0), and a small constant
    power is as exact as its product. Identity and StopGradient are removed: they only concern
    gradients, which have already been created.
    """

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, RULES)


# -- sums ------------------------------------------------------------------------------------


def _add(rw: Rewriter, node: Node) -> Answer:
    x, y = node.inputs
    for kept, other in ((x, y), (y, x)):
        if rw.scalar(other) == 0:
            answer = rw.fitted(node, kept)
            if answer is not None:
                return answer
    for kept, other in ((x, y), (y, x)):
        negative = rw.maker(other, NEGATIVE)
        if negative is not None:
            return change(node, SUBTRACT, (kept, negative.inputs[0]))
    return _join_constants(rw, node)


def _subtract(rw: Rewriter, node: Node) -> Answer:
    x, y = node.inputs
    if rw.scalar(y) == 0:
        return rw.fitted(node, x)
    negative = rw.maker(y, NEGATIVE)
    if negative is not None:
        return change(node, ADD, (x, negative.inputs[0]))
    if x is y and is_integer(x.type.dtype):
        return rw.filled(node, 0)
    return None


# -- products --------------------------------------------------------------------------------


def _multiply(rw: Rewriter, node: Node) -> Answer:
    x, y = node.inputs
    dtype = x.type.dtype
    for kept, other in ((x, y), (y, x)):
        factor = rw.scalar(other)
        if factor is None:
            continue
        if factor == 1:
            return rw.fitted(node, kept)
        if factor == 0 and is_integer(dtype):
            return rw.filled(node, 0)
        if kept.type == node.outputs[0].type:
            if factor == -1:
                return change(node, NEGATIVE, (kept,))
            negative = rw.maker(kept, NEGATIVE)
            if negative is not None and is_inexact(dtype):
                return change(node, MULTIPLY, (negative.inputs[0], rw.constant(-factor, dtype)))
    return _both_negative(rw, node) or _join_constants(rw, node)


def _divide(rw: Rewriter, node: Node) -> Answer:
    x, y = node.inputs
    if rw.scalar(y) == 1:
        return rw.fitted(node, x)
    return _both_negative(rw, node)


def _floor_divide(rw: Rewriter, node: Node) -> Answer:
    x, y = node.inputs
    if is_integer(x.type.dtype) and rw.scalar(y) == 1:
        return rw.fitted(node, x)
    return None


def _both_negative(rw: Rewriter, node: Node) -> Node | None:
    """-x * -y and -x / -y."""
    x, y = (rw.maker(t, NEGATIVE) for t in node.inputs)
    if x is None or y is None:
        return None
    return node.replace(inputs=(x.inputs[0], y.inputs[0]))


def _join_constants(rw: Rewriter, node: Node) -> Answer:
    """(x + 1) + 2 is x + 3, and (x * 2) * 3 is x * 6: of integers, where wrapping is exact."""
    dtype = node.outputs[0].type.dtype
    if not is_integer(dtype):
        return None
    for inner_result, outer in (node.inputs, node.inputs[::-1]):
        b = rw.scalar(outer)
        inner = rw.maker(inner_result, node.op)
        if b is None or inner is None or inner_result.type != node.outputs[0].type:
            continue
        for x, other in (inner.inputs, inner.inputs[::-1]):
            a = rw.scalar(other)
            if a is not None and x.type == inner_result.type:
                joined = _wrapped(a + b if node.op is ADD else a * b, dtype)
                return node.replace(inputs=(x, rw.constant(joined, dtype)))
    return None


def _wrapped(value: int, dtype: DType) -> int:
    least, greatest = int_range(dtype)
    return (value - least) % (greatest - least + 1) + least


# -- powers ----------------------------------------------------------------------------------


def _power(rw: Rewriter, node: Node) -> Answer:
    x, y = node.inputs
    exponent = rw.scalar(y)
    return None if exponent is None else _constant_power(rw, node, x, exponent)


def _integer_power(rw: Rewriter, node: Node) -> Answer:
    return _constant_power(rw, node, node.inputs[0], node.attrs["exponent"])


def _constant_power(rw: Rewriter, node: Node, x: Tensor, exponent: Any) -> Answer:
    if exponent == 1:
        return rw.fitted(node, x)
    if exponent == 0:  # NaN to the power 0 is also 1
        return rw.filled(node, 1)
    if x.type == node.outputs[0].type:
        if exponent == 2:
            return change(node, SQUARE, (x,))
        if exponent == -1 and is_floating(x.type.dtype):
            return change(node, RECIPROCAL, (x,))
    return None


def _square(rw: Rewriter, node: Node) -> Answer:
    """(-x) ** 2, and abs(x) ** 2 of a real x."""
    x = node.inputs[0]
    inner = rw.maker(x, NEGATIVE) or rw.maker(x, ABS)
    if inner is None or inner.inputs[0].type != x.type:
        return None
    return node.replace(inputs=inner.inputs)


# -- choices and logic -----------------------------------------------------------------------


def _where(rw: Rewriter, node: Node) -> Answer:
    condition, x, y = node.inputs
    if x is y:
        return rw.fitted(node, x)
    known = rw.scalar(condition)
    return None if known is None else rw.fitted(node, x if known else y)


def _both_same(rw: Rewriter, node: Node) -> Answer:
    """max(x, x), and logical_and(x, x)."""
    return node.inputs[0] if node.inputs[0] is node.inputs[1] else None


def _logical(neutral: bool) -> Rule:
    """`x and true`, `x and false`, `x or ...` for bools. `neutral` is the value that changes
    nothing."""

    def rule(rw: Rewriter, node: Node) -> Answer:
        x, y = node.inputs
        if x is y:
            return x
        if kind_of(x.type.dtype) != "bool":
            return None
        for kept, other in ((x, y), (y, x)):
            known = rw.scalar(other)
            if known is not None:
                return rw.fitted(node, kept) if known is neutral else rw.filled(node, known)
        return None

    return rule


# -- functions that undo themselves or are idempotent ----------------------------------------


def _identity(rw: Rewriter, node: Node) -> Answer:
    """An identity on another device than its operand is a copy, and stays."""
    maker = rw.made.get(node.inputs[0])
    if node.device and (maker is None or maker.device != node.device):
        return None
    return node.inputs[0]


def _undoes_itself(rw: Rewriter, node: Node) -> Answer:
    inner = rw.maker(node.inputs[0], node.op)
    return inner.inputs[0] if inner is not None else None


def _repeats_itself(rw: Rewriter, node: Node) -> Answer:
    """floor(floor(x)), abs(abs(x))."""
    return node.inputs[0] if rw.maker(node.inputs[0], node.op) is not None else None


def _abs(rw: Rewriter, node: Node) -> Answer:
    negative = rw.maker(node.inputs[0], NEGATIVE)
    if negative is not None:
        return node.replace(inputs=negative.inputs)
    return _repeats_itself(rw, node)


def _conj(rw: Rewriter, node: Node) -> Answer:
    if not is_complex(node.inputs[0].type.dtype):
        return node.inputs[0]
    return _undoes_itself(rw, node)


def _part(position: int) -> Rule:
    """real(complex(re, im)) and imag(complex(re, im)); the real part of a real x."""

    def rule(rw: Rewriter, node: Node) -> Answer:
        x = node.inputs[0]
        if position == 0 and x.type == node.outputs[0].type:
            return x
        pair = rw.maker(x, COMPLEX)
        return None if pair is None else rw.fitted(node, pair.inputs[position])

    return rule


# -- casts -----------------------------------------------------------------------------------


def _cast(rw: Rewriter, node: Node) -> Answer:
    """Cast(Cast(x, wide), d) is Cast(x, d) if the intermediate dtype loses nothing."""
    x = node.inputs[0]
    if x.type.dtype == node.outputs[0].type.dtype:
        return x
    inner = rw.maker(x, CAST)
    if inner is None:
        return None
    source = inner.inputs[0]
    if not may_skip(source.type.dtype, x.type.dtype, node.outputs[0].type.dtype):
        return None
    return node.replace(inputs=(source,))


RULES: Final[dict[OpDef, Rule]] = {
    ADD: _add,
    SUBTRACT: _subtract,
    NEGATIVE: _undoes_itself,
    MULTIPLY: _multiply,
    DIVIDE: _divide,
    FLOOR_DIVIDE: _floor_divide,
    POWER: _power,
    INTEGER_POWER: _integer_power,
    SQUARE: _square,
    MAXIMUM: _both_same,
    MINIMUM: _both_same,
    WHERE: _where,
    LOGICAL_AND: _logical(True),
    LOGICAL_OR: _logical(False),
    LOGICAL_NOT: _undoes_itself,
    ABS: _abs,
    FLOOR: _repeats_itself,
    CEIL: _repeats_itself,
    ROUND: _repeats_itself,
    CONJ: _conj,
    REAL: _part(0),
    IMAG: _part(1),
    CAST: _cast,
    IDENTITY: _identity,
    STOP_GRADIENT: first_operand,
}
