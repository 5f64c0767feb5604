"""Sizes in a .pt2 file: numbers, or expressions of SymPy as text. Nothing is evaluated."""

from __future__ import annotations

import ast
from functools import reduce
from operator import add, floordiv, mul
from typing import Any, Final

from graphc.importers.torch.call import Refused
from graphc.ir.dims import Dim, symbol

_LONGEST: Final = 2000
_NOT_SIZES: Final = (
    *(ArithmeticError, KeyError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError),
)
_OPERATORS: Final = {ast.Add: add, ast.Mult: mul, ast.FloorDiv: floordiv}
_FUNCTIONS: Final = {"Add": add, "Mul": mul, "FloorDiv": floordiv, "CleanDiv": floordiv}


def size_of(size: Any) -> Dim:
    """A size of the file: {"as_int": 3} or {"as_expr": {"expr_str": "Symbol('s0')"}}.

    Raises:
        Refused: the expression is not supported.

    Examples:
        >>> size_of({"as_int": 3})
        3
        >>> size_of({"as_expr": {"expr_str": "Mul(Integer(2), Symbol('s0', integer=True))"}})
        2*s0
    """
    if "as_int" in size:
        found = size["as_int"]
        if type(found) is not int or not 0 <= found < 1 << 62:
            raise Refused(f"has the size {found!r}")
        return int(found)
    text = str(size["as_expr"]["expr_str"])
    wrong = Refused(f"has the size {text[:80]}, which is not supported")
    if len(text) > _LONGEST:
        raise wrong
    try:
        made: Dim = _dim(ast.parse(text, mode="eval").body)
    except _NOT_SIZES:
        raise wrong from None
    if isinstance(made, int) and not 0 <= made < 1 << 62:
        raise wrong
    return made


def _dim(tree: ast.expr) -> Any:
    """A size as a tree of Python, of which calls of a few names, numbers and + * // are known."""
    match tree:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return symbol(name)
        case ast.BinOp(left=left, right=right, op=op):
            return _OPERATORS[type(op)](_dim(left), _dim(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -1 * _dim(operand)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
            return symbol(name)
        case ast.Call(func=ast.Name(id="Integer"), args=[number]):
            return _dim(number)
        case ast.Call(func=ast.Name(id="Pow"), args=[base, exponent]):
            times = _dim(exponent)
            return reduce(mul, [_dim(base)] * (times if times in range(1, 9) else 0))
        case ast.Call(func=ast.Name(id=name), args=args) if args:
            return reduce(_FUNCTIONS[name], map(_dim, args))
    raise ValueError("not a size")
