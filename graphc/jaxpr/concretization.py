"""The error about a traced function that needs the value of an array in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
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

# What JAX adds to its errors: where it was tracing, what a value is inside, a page about the class.
_ADDED = re.compile(r"^(The error occurred while tracing|This \w*Tracer|See https)", re.MULTILINE)
_ARGUMENTS = re.compile(r"it depends on the values? of the arguments? (.+)\.$", re.MULTILINE)
_HINT = (
    "use lax.cond, jnp.where or jnp functions; or make the argument static, by static_argnames of "
    "gc.jit or by functools.partial"
)


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
    error: Exception, names: Mapping[str, str], source: Source | None
) -> JaxImportError:
    """The error for one of the classes `NEEDS_VALUE`.

    Args:
        names: the user's names of the arguments of the traced function, by those that JAX knows.
        source: the line that is named if the error does not come from a line of the user's.
    """
    text = str(error)
    given = _ARGUMENTS.search(text)
    found = "an array"
    if given is not None:
        listed = [names.get(name, name) for name in re.split(r", and | and |, ", given[1])]
        found = f"its argument{'s' * (len(listed) > 1)} {', '.join(map(repr, listed))}"
    added = _ADDED.search(text)
    own = text if added is None else text[: added.start()]
    kind = next(ours for theirs, ours in _OURS.items() if isinstance(error, theirs))
    return kind(
        f"the JAX function needs the value of {found} in Python",
        details=[line.strip() for line in own.splitlines() if line.strip()],
        source=source_of_error(error) or source,
        hint=_HINT,
    )
