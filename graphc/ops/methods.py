"""The operators and methods of tensors and variables, and NumPy's functions applied to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from graphc.errors import GraphError
from graphc.ir.dims import bind_arithmetic
from graphc.ir.name_errors import function_hint
from graphc.ir.operators import bind_methods, is_comparable
from graphc.ops.arrays.subscript import getitem
from graphc.ops.arrays.updating import update
from graphc.ops.structure.state import assign, assign_add, assign_sub, read

_Args = Sequence[Any]
_Named = Mapping[str, Any]

# NumPy functions whose operator corresponds to a function of another name here: `x & y` of arrays
# calls `numpy.bitwise_and`.
_UFUNCS: Final = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}


def bind(functions: _Named) -> None:
    """Gives `ir.operand.Operand` and `ir.variable.Variable` their methods.

    Args:
        functions: the functions of `gc` by name, and what else its module contains.
    """
    public = {name: f for name, f in functions.items() if callable(f) and name[0] != "_"}
    table: dict[str, Callable[..., Any]] = {
        **public,  # methods have the name of the function
        "getitem": getitem,
        "update": update,
        "read": read,
        "assign": assign,
        "assign_add": assign_add,
        "assign_sub": assign_sub,
        "numpy": lambda function, args, kwargs: _of_numpy(functions, function, args, kwargs),
        "numpy_ufunc": lambda *row: _of_ufunc(functions, *row),
    }
    bind_methods(table)
    bind_arithmetic(table)


def _of_ufunc(functions: _Named, ufunc: Any, method: str, args: _Args, kwargs: _Named) -> Any:
    """Implements NumPy ufuncs such as `numpy.add(x, y)` for tensors; also `array + x`."""
    name = ufunc.__name__
    if name in ("equal", "not_equal") and not all(map(is_comparable, map(_scalar, args))):
        return name == "not_equal"  # a date, for example, is not equal to any tensor
    if method != "__call__":
        raise GraphError.here(
            f"numpy.{name}.{method} does not take a tensor of a graph",
            hint="use gc.sum, gc.cumsum or x.at[i].add instead",
        )
    return _called(functions, "numpy", _UFUNCS.get(name, name), args, kwargs)


def _scalar(value: Any) -> Any:
    """A scalar instead of a 0-d array, which NumPy's operators pass to ufuncs."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _of_numpy(functions: _Named, function: Any, args: _Args, kwargs: _Named) -> Any:
    """Implements a function of NumPy for tensors by the function of the same name in `gc`."""
    if function in (np.shape, np.ndim, np.size) and len(args) == 1 and not kwargs:
        return getattr(args[0], function.__name__)
    return _called(functions, function.__module__, function.__name__, args, kwargs)


def _called(functions: _Named, module: str, name: str, args: _Args, kwargs: _Named) -> Any:
    if kwargs.get("out") is not None:
        raise GraphError.here(
            f"numpy.{name} cannot write a tensor of a graph into an array (out=, or `array += x`)",
            hint="write `y = array + x`: the result is a tensor",
        )
    home: Any = functions
    if module in ("numpy.linalg", "numpy.fft"):
        home = vars(functions[module.removeprefix("numpy.")])
    function = home.get(name)
    if function is None:
        raise GraphError.here(
            f"{module}.{name} does not take a tensor of a graph, and graphc has no function of "
            "that name",
            hint=function_hint(module.replace("numpy", "graphc"), name, home),
        )
    return function(*args, **{k: v for k, v in kwargs.items() if k != "out"})
