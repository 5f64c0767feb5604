"""The error about a traced function that needs the value of an array in Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jax import errors as of_jax

from graphc.errors import JaxImportError
from graphc.ir.source import Source, source_of_error

NEEDS_VALUE: Final = (
    of_jax.ConcretizationTypeError,
    of_jax.TracerArrayConversionError,
    of_jax.TracerIntegerConversionError,
)
"""What JAX raises if a function needs the value of a traced array: `if x > 0:`, `np.sin(x)`."""

# The place at which JAX noticed it, and the arguments on which the value depends.
_ORIGIN = re.compile(r"The error occurred while tracing the function (\S+) ")
_ARGUMENTS = re.compile(r"it depends on the values? of the arguments? (.+)\.$", re.MULTILINE)
_NUMBERED = re.compile(r"values\[(\d+)\]")
_HINT = "use lax.cond, jnp.where or jnp functions, or bind the value with functools.partial"


# Code that catches JAX's error catches graphc's too.


class NeedsNumberError(JaxImportError, of_jax.ConcretizationTypeError):
    """A traced function needs a number: `float(x)`, `jnp.arange(n)`."""


class NeedsBoolError(JaxImportError, of_jax.TracerBoolConversionError):
    """A traced function needs a decision: `if x > 0:`."""


class NeedsIntegerError(JaxImportError, of_jax.TracerIntegerConversionError):
    """A traced function needs an index: `range(n)`, `names[n]`."""


class NeedsArrayError(JaxImportError, of_jax.TracerArrayConversionError):
    """A traced function needs a NumPy array: `np.sin(x)`."""


_OURS: Final[dict[type[Exception], type[JaxImportError]]] = {
    of_jax.TracerBoolConversionError: NeedsBoolError,  # JAX's is a ConcretizationTypeError too
    of_jax.ConcretizationTypeError: NeedsNumberError,
    of_jax.TracerIntegerConversionError: NeedsIntegerError,
    of_jax.TracerArrayConversionError: NeedsArrayError,
}


def needs_value(
    error: Exception, traced: str, names: Sequence[str], source: Source | None
) -> JaxImportError:
    """The error for one of the classes `NEEDS_VALUE`.

    Args:
        traced: the name of the traced function, whose arguments are `values`.
        names: the user's names of these arguments.
        source: the line that is named if the error does not come from a line of the user's.
    """
    text = str(error)
    origin = _ORIGIN.search(text)
    given = _ARGUMENTS.search(text)
    found = "an array"
    if given is not None:
        listed = re.split(r", and | and |, ", given[1])
        if origin is not None and origin[1] == traced:
            listed = [_NUMBERED.sub(lambda m: names[int(m[1])], each) for each in listed]
        found = f"its argument{'s' * (len(listed) > 1)} {', '.join(map(repr, listed))}"
    kind = next(ours for theirs, ours in _OURS.items() if isinstance(error, theirs))
    return kind(
        f"the JAX function needs the value of {found} in Python",
        details=[line.strip() for line in text[: origin and origin.start()].splitlines() if line],
        source=source_of_error(error) or source,
        hint=_HINT,
    )
