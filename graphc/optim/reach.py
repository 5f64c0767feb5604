"""What a user's function reaches by global names, where it can only calculate with it.

Read off its bytecode. A function that imports, writes to variables outside, or uses anything whose
value may be another one next time (files, the clock, devices, random numbers) is not known.
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Unknown(Exception):
    """Not known to be the same whenever it looks the same; the text says what."""


class Reached(NamedTuple):
    """What stands under a global name, or under attributes of a module that does.

    Attributes:
        path: the names, as they are written.
        value: what it is.
        by_name: whether the name tells all, since a library or Python itself has it.
    """

    path: str
    value: Any
    by_name: bool


# Modules of which every function but those of `_IMPURE` only calculates.
_CALCULATE = {
    *("jax.lax", "jax.nn", "jax.numpy", "jax.numpy.linalg", "jax.scipy.special", "jax.tree"),
    *("jax.tree_util", "math", "operator", "optax", "optax.contrib", "optax.losses"),
    *("optax.projections", "optax.schedules", "optax.transforms", "optax.tree", "optax.tree_utils"),
}
_IMPURE = {"fromfile", "load", "save", "savez", "register_pytree_node"}
_OF = {
    "jax": {"Array", "checkpoint", "grad", "jit", "value_and_grad", "vmap"},
    "numpy": {
        *("arange", "array", "asarray", "clip", "e", "full", "inf", "interp", "linspace", "mean"),
        *("nan", "ndim", "newaxis", "ones", "pi", "prod", "shape", "size", "sum", "where", "zeros"),
    },
}
_BUILTINS = {
    *("abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "filter", "float"),
    *("int", "isinstance", "len", "list", "map", "max", "min", "pow", "range", "reversed"),
    *("round", "slice", "sorted", "str", "sum", "tuple", "zip", "ValueError", "TypeError"),
    *("AssertionError", "NotImplementedError"),
}
_MISSING = object()
_NO_MODULE = types.ModuleType("none")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_REFUSED = (
    *("DELETE_", "IMPORT_", "LOAD_BUILD_CLASS", "LOAD_FROM_DICT", "LOAD_LOCALS", "LOAD_NAME"),
    *("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME"),
)


def reached_by(function: types.FunctionType) -> Iterator[Reached]:
    """What the code of `function`, and that of the functions in it, reaches by name.

    Raises:
        Unknown: something that may be another one next time.
    """
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        yield from _reached(code, function.__globals__)
        pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _reached(code: types.CodeType, globals: Mapping[str, Any]) -> Iterator[Reached]:
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for i, step in enumerate(steps):
        name = step.opname
        outside = name == "STORE_DEREF" and step.argval in code.co_freevars
        if name.startswith(_REFUSED) or outside:
            raise Unknown(f"{code.co_name} does more than calculate: {name.lower()}")
        if name in _ATTRIBUTES and str(step.argval).startswith("__"):
            raise Unknown(f"{code.co_name} reaches for {step.argval}")
        if name == "LOAD_GLOBAL":
            yield _global(step.argval, steps[i + 1 :], globals)


def _global(name: str, rest: Sequence[dis.Instruction], globals: Mapping[str, Any]) -> Reached:
    if name not in globals:
        if name in _BUILTINS and hasattr(builtins, name):
            return Reached(name, getattr(builtins, name), True)
        raise Unknown(f"the global {name}")
    value, path, owner = globals[name], name, None
    for step in rest:
        if not isinstance(value, types.ModuleType) or step.opname not in _ATTRIBUTES:
            break
        owner, name = value, step.argval
        path = f"{path}.{name}"
        value = vars(owner).get(name, _MISSING)  # a module's `__getattr__` may do anything
    if isinstance(value, types.ModuleType):
        raise Unknown(f"the module {path} as a value")
    if owner is None:
        library = library_name(value)
        return Reached(f"{path} is {library}", value, library is not None)
    if value is _MISSING or not _only_calculates(owner.__name__, name, value):
        raise Unknown(path)
    return Reached(f"{path} of {owner.__name__}", value, True)


def library_name(value: Any) -> str | None:
    """Where optax, JAX, NumPy or Python has `value` itself, under its own name; None for nowhere.

    Raises:
        Unknown: it is theirs, and does more than calculate.
    """
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    top = module.partition(".")[0]
    if top not in ("builtins", "jax", "jaxlib", "math", "numpy", "operator", "optax"):
        return None
    if top == "optax":
        return f"{module}.{name}" if _found(module, name) is value else None
    for home in ("builtins", *_OF, *_CALCULATE):
        if _found(home, name) is value and _only_calculates(home, name, value):
            return f"{home}.{name}"
    if _found(module, name) is value:
        raise Unknown(f"{module}.{name}")
    return None


def _found(module: str, name: str) -> Any:
    first, *rest = name.split(".")
    found = vars(sys.modules.get(module, _NO_MODULE)).get(first, _MISSING)
    for part in rest:
        found = getattr(found, part, _MISSING)
    return found


def _only_calculates(module: str, name: str, value: Any) -> bool:
    if isinstance(value, np.ufunc) or (isinstance(value, type) and issubclass(value, np.generic)):
        return True
    if module == "builtins":
        return name in _BUILTINS
    return name in _OF.get(module, ()) or (module in _CALCULATE and name not in _IMPURE)
