"""A digest of an optax transformation: the same only where its functions calculate the same.

A transformation is two closures. What they calculate follows from their code, their defaults and
what they have closed over, and those are taken in, all the way down. Functions of optax, JAX and
NumPy themselves stand for their versions, which are the caller's to take in; a user's function is
read for what it reaches by name (`graphc.optim.reach`). Whatever is not known to be the same
whenever it looks the same has no digest.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import os
import types
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import optax
from jax import numpy as jnp

from graphc.optim.reach import Reached, Unknown, library_name, reached_by

_FOLDERS = tuple(os.path.join(os.path.dirname(str(m.__file__)), "") for m in (optax, jax))
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented))


def digest_of(value: Any) -> str | None:
    """The digest of a value made of functions and plain data; None where it has none."""
    digest = _Digest()
    try:
        digest.add(value)
    except Unknown:
        return None
    return digest.result()


class _Digest:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, tuple[int, Any]] = {}  # by id; the value is kept alive

    def result(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Takes `value` in.

        Raises:
            Unknown: it has no digest.
        """
        if type(value) in _SCALARS:
            self._put(type(value).__name__, _text(value))
            return
        if isinstance(value, (types.FunctionType, list, dict)):  # they may hold each other
            found = self._seen.get(id(value))
            if found is not None:
                self._put("again", str(found[0]))
                return
            self._seen[id(value)] = (len(self._seen), value)
        self._add_object(value)

    def _add_object(self, value: Any) -> None:
        if (name := library_name(value)) is not None:
            self._put("library", name)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._put("method")
            self._all((value.__func__, value.__self__))
        elif type(value) is functools.partial:
            self._put("partial")
            self._all((value.func, value.args, value.keywords))
        elif isinstance(value, enum.Enum) and _is_optax(type(value)):
            self._put("enum", type(value).__module__, type(value).__qualname__, value.name)
        elif type(value) in (tuple, list):
            self._put(type(value).__name__, str(len(value)))
            self._all(value)
        elif type(value) is dict:
            self._put("dict", str(len(value)))
            self._all(item for pair in value.items() for item in pair)
        elif isinstance(value, tuple) and _is_optax(type(value)):  # a NamedTuple
            self._put("tuple of", type(value).__module__, type(value).__qualname__)
            self._all(value)
        elif isinstance(value, (np.ndarray, np.generic, jax.Array, np.dtype)):
            self._array(value)
        elif _is_optax(type(value)):
            self._put("object", type(value).__module__, type(value).__qualname__)
            self._fields(value)
        else:
            raise Unknown(f"a {type(value).__name__}")

    def _function(self, function: types.FunctionType) -> None:
        self._put("function", function.__module__ or "", function.__qualname__)
        own = not function.__code__.co_filename.startswith(_FOLDERS)
        self._code(function.__code__, own_lines=own)
        self._all((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not filled yet
                self._put("empty")
                continue
            self.add(content)
        self.add(function.__dict__)
        if own:
            for reached in reached_by(function):
                self._reached(reached)

    def _reached(self, reached: Reached) -> None:
        self._put("reaches", reached.path)
        if not reached.by_name:
            self.add(reached.value)

    def _code(self, code: types.CodeType, *, own_lines: bool) -> None:
        self._put("code", code.co_name, code.co_code.hex(), str(code.co_flags))
        self._put("counts", str((code.co_argcount, code.co_posonlyargcount)))
        self._put("keywords", str((code.co_kwonlyargcount, code.co_exceptiontable)))
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._put("names", *names)
        if own_lines:  # nodes carry them
            self._put("lines", code.co_filename, str(code.co_firstlineno))
            self._put("table", code.co_linetable.hex())
        self._put("constants", str(len(code.co_consts)))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, own_lines=own_lines)
            elif isinstance(constant, frozenset):  # of `x in {1, 2}`
                self._put("set", *sorted(map(repr, constant)))
            else:
                self.add(constant)

    def _array(self, value: Any) -> None:
        if isinstance(value, jax.core.Tracer):
            raise Unknown("a value of a function that is being traced")
        if isinstance(value, np.dtype):
            self._put("dtype", _plain_name(value))
            return
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
            raise Unknown("random keys")
        array = np.asarray(value)
        weak = str(getattr(value, "weak_type", False))
        self._put("array", type(value).__name__, _plain_name(array.dtype), str(array.shape), weak)
        self._put("elements", hashlib.sha256(array.tobytes()).hexdigest())

    def _fields(self, value: Any) -> None:
        """The attributes of an object whose class has no other place for what it knows."""
        classes = [c for c in type(value).__mro__ if c is not object]
        slots = any("__slots__" in vars(c) for c in classes)
        if slots or not hasattr(value, "__dict__") or not all(map(_is_optax, classes)):
            raise Unknown(f"a {type(value).__name__}")
        self.add(vars(value))

    def _all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def _put(self, *parts: str) -> None:
        """Text that tells where each part ends."""
        self._hash.update(repr(parts).encode())


def _plain_name(dtype: np.dtype[Any]) -> str:
    if dtype.hasobject or dtype.names is not None:
        raise Unknown("an array of objects or of records")
    return dtype.name


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, (float, bytes)) else repr(value)


def _is_optax(cls: type) -> bool:
    """Whether optax has this class, under its own name."""
    return cls.__module__.startswith("optax.") and library_name(cls) is not None
