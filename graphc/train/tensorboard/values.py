"""What callers of `SummaryWriter` pass, checked and copied to the host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from graphc.data.core.checks import check_count
from graphc.errors import AttributeValueError, DTypeError, GraphError, ShapeError
from graphc.ir.operand import Operand
from graphc.ir.operand_types import SupportsArray
from graphc.ir.variable import Variable

Values: TypeAlias = complex | SupportsArray | Sequence[Any]
"""A number, nested lists of numbers, or an array of NumPy or JAX."""

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_LARGEST_STEP = 2**63 - 1


def checked_tag(method: str, tag: Any) -> str:
    """The name of a series of values.

    Raises:
        AttributeValueError: it is no text, it is empty, or UTF-8 cannot encode it.
    """
    if isinstance(tag, str) and tag:
        try:
            tag.encode()
        except UnicodeEncodeError:
            pass
        else:
            return str(tag)
    raise AttributeValueError.here(
        f"SummaryWriter.{method}: the tag must be a text, got {tag!r}",
        hint='give the name of the curve or picture, such as "train/loss"',
    )


def checked_step(method: str, step: Any) -> int:
    """The step of an event.

    Raises:
        AttributeValueError: it is not an int that 64 bits hold.
    """
    if isinstance(step, np.ndarray | jax.Array) and not step.shape:
        step = step[()]
    if isinstance(step, int | np.integer | jax.Array) and not isinstance(step, bool):
        try:
            number = int(step)
        except TypeError:  # a float of JAX that is no number, a tracer
            number = -1
        exact = not isinstance(step, jax.Array) or np.issubdtype(step.dtype, np.integer)
        if exact and 0 <= number <= _LARGEST_STEP:
            return number
    raise AttributeValueError.here(
        f"SummaryWriter.{method}: step must be an int of at least 0, got {step!r}",
        hint="give the number of training steps so far",
    )


def host_copy(method: str, value: Any) -> Array:
    """A copy of numbers on the host, which the caller cannot change any more.

    Raises:
        GraphError: the value is a tensor or a variable of a graph.
        DTypeError: it does not hold real numbers or bools.
    """
    if isinstance(value, Operand | Variable):
        raise GraphError.here(
            f"SummaryWriter.{method}: {value!r} has no value outside a run",
            hint="fetch it with session.run, or read a variable with session.get, and pass the "
            "result",
        )
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    try:
        array: Array = np.array(value)
    except (TypeError, ValueError) as error:
        raise DTypeError.here(f"SummaryWriter.{method}: cannot read the value: {error}") from error
    if not is_real(array):
        raise DTypeError.here(
            f"SummaryWriter.{method}: takes real numbers, got an array of {array.dtype}",
            hint="log np.abs(value) and np.angle(value)" if array.dtype.kind == "c" else None,
        )
    return array


def is_real(array: Array) -> bool:
    """Whether an array holds bools, integers or floats, with those of ml_dtypes."""
    kind = array.dtype.kind
    return kind in "biuf" or (kind == "V" and jnp.issubdtype(array.dtype, jnp.number))


def require_rank(method: str, array: Array, ranks: Sequence[int], hint: str) -> None:
    """Rejects an array of another rank.

    Raises:
        ShapeError: naming the shape.
    """
    if array.ndim not in ranks:
        raise ShapeError.here(
            f"SummaryWriter.{method}: the rank must be {' or '.join(map(str, ranks))}, got the "
            f"shape {array.shape}",
            hint=hint,
        )


def checked_number(method: str, name: str, number: Any, least: int) -> int:
    """An option that is an int of at least `least`.

    Raises:
        AttributeValueError: it is not.
    """
    check_count(f"SummaryWriter.{method}: {name}", number, least)
    return int(number)


def checked_texts(text: Any) -> Array:
    """A text, or a list or table of texts, as an array of Python's strings.

    Raises:
        DTypeError: an item is no text, or UTF-8 cannot encode it.
        ShapeError: the rows of a table have different lengths, or the rank is above 2.
    """
    try:
        array: Array = np.array(text, dtype=object)
    except ValueError:
        raise ShapeError.here(
            "SummaryWriter.text: the rows of a table must have the same length"
        ) from None
    require_rank("text", array, (0, 1, 2), "a text, a list of texts, or a table")
    for item in array.reshape(-1):
        if not isinstance(item, str):
            raise DTypeError.here(
                f"SummaryWriter.text: takes texts, got {item!r:.60}",
                hint="str(value), or one text with Markdown",
            )
        try:
            item.encode()
        except UnicodeEncodeError as error:
            raise DTypeError.here(
                f"SummaryWriter.text: UTF-8 cannot encode {item!r:.60}"
            ) from error
    return array


def checked_folder(method: str, folder: Any) -> str:
    """The name of a folder.

    Raises:
        AttributeValueError: it is neither a text nor a path.
    """
    if isinstance(folder, str | os.PathLike) and isinstance(name := os.fspath(folder), str):
        return name
    raise AttributeValueError.here(
        f"{method}: log_dir must be the name of a folder, got {folder!r}"
    )
