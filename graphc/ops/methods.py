"""The operators of tensors and variables (`x + y`, `x[i]`, `v.assign(t)`), by their functions."""

from __future__ import annotations

from graphc.ir.node import bind_methods
from graphc.ops.arrays import subscript, updating
from graphc.ops.elementwise import arithmetic, comparison, powers
from graphc.ops.matrices import matrix_product
from graphc.ops.structure import state


def bind() -> None:
    """Gives `ir.node.Operand` and `ir.variable.Variable` their methods."""
    bind_methods(
        {
            "add": arithmetic.add,
            "subtract": arithmetic.subtract,
            "multiply": arithmetic.multiply,
            "divide": arithmetic.divide,
            "floor_divide": arithmetic.floor_divide,
            "remainder": arithmetic.remainder,
            "power": powers.power,
            "matmul": matrix_product.matmul,
            "negative": arithmetic.negative,
            "abs": arithmetic.absolute,
            "logical_not": comparison.logical_not,
            "logical_and": comparison.logical_and,
            "logical_or": comparison.logical_or,
            "logical_xor": comparison.logical_xor,
            "equal": comparison.equal,
            "not_equal": comparison.not_equal,
            "less": comparison.less,
            "less_equal": comparison.less_equal,
            "greater": comparison.greater,
            "greater_equal": comparison.greater_equal,
            "getitem": subscript.getitem,
            "update": updating.update,
            "read": state.read,
            "assign": state.assign,
            "assign_add": state.assign_add,
            "assign_sub": state.assign_sub,
        }
    )
