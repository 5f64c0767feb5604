"""Parameters of estimators inside a pickle: functions, optimizers, options.

They are pickled apart from the rest. So an estimator whose build function cannot be imported where
it is unpickled still predicts. Functions of the main script, lambdas and closures travel by value,
as joblib's processes send them.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from graphc.errors import CopyError, StateError
from graphc.ir.source import current_source

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_BY_VALUE = b"cloudpickle"  # stands in the pickle of each function sent by value


def cloudpickle() -> Any:
    """The module with which joblib pickles functions by value; scikit-learn requires joblib."""
    try:
        return import_module("cloudpickle")
    except ImportError:  # before joblib 1.6 it was a part of joblib
        return import_module("joblib.externals.cloudpickle")


@dataclass(frozen=True)
class Carried:
    """A pickled parameter.

    Attributes:
        data: its pickle.
        python: the version of Python that wrote it. Functions by value are bytecode, which other
            versions do not understand.
    """

    data: bytes
    python: tuple[int, int]

    def value(self, name: str) -> Any:
        """The parameter, or what stands for it if it cannot be restored here."""
        here = sys.version_info[:2]
        if _BY_VALUE in self.data and self.python != here:
            wrote, reads = [".".join(map(str, version)) for version in (self.python, here)]
            return Missing(name, f"it was pickled by value on Python {wrote}, this is {reads}")
        try:
            return pickle.loads(self.data)
        except Exception as error:
            return Missing(name, f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Missing:
    """Stands for a parameter that could not be restored from a pickle. Any use raises an error.

    Attributes:
        name: of the parameter.
        reason: why it could not be restored.
    """

    name: str
    reason: str

    def refuse(self) -> NoReturn:
        """Raises `StateError`, which says what is missing."""
        raise StateError(
            f"the parameter {self.name!r} of this estimator could not be restored",
            details=[self.reason],
            source=current_source(),
            hint="the estimator predicts without it; to fit it again, put the function where this "
            f"process can import it, or call estimator.set_params({self.name}=...)",
        )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        self.refuse()


def carry(name: str, value: Any) -> Any:
    """The form of a parameter inside a pickle.

    Raises:
        CopyError: it cannot be pickled, not by value either.
    """
    if _is_plain(value) or isinstance(value, Missing):
        return value
    try:
        return Carried(cloudpickle().dumps(value), sys.version_info[:2])
    except Exception as error:
        raise CopyError(
            f"the parameter {name!r} of an estimator cannot be pickled",
            details=[f"{type(error).__name__}: {error}"],
            hint="pass a function, plain values or records, no sessions, files or locks",
        ) from error


def uncarry(name: str, value: Any) -> Any:
    """What `carry` was given."""
    return value.value(name) if isinstance(value, Carried) else value


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return isinstance(value, _PLAIN)
