"""The hints of errors about shapes and dtypes for which the place of the error has none."""

from __future__ import annotations

import re
from typing import Final

from graphc.errors import DTypeError, GraphcError, ShapeError

# What is searched for in the message -> the hint. The first that is found counts.
_DTYPES: Final = (
    (r"one dtype|dtypes differ", "gc.cast one of them to the dtype of the other"),
    (r"floating", 'gc.cast gives another dtype: gc.cast(x, "float32")'),
    (r"integer|int32", 'gc.cast gives another dtype: gc.cast(x, "int32")'),
    (r"bool", "a comparison is bool, such as x > 0 or gc.not_equal(x, 0)"),
    (r"real|complex", "gc.real and gc.imag take a complex tensor apart, gc.complex makes one"),
    (r"must be ", "gc.cast gives another dtype"),
)
_SHAPES: Final = (
    (r"axis -?\d+ is out of range for rank 0\b", "a scalar has no axes"),
    (r"axis -?\d+ is out of range", "axes are counted from 0; -1 is the last one"),
    (r"not broadcast", "aligned from the right, sizes must be equal or 1"),
    (r"differ(, | in rank| in shape|$)", "gc.reshape, gc.transpose or slice one of them"),
    (r"known", "give the placeholder an int for this size"),
    (
        r"no elements|nothing to |there are no |there must be |at least (one|2|two)",
        "look at the sizes of what is passed: len(x), x.shape",
    ),
    (r"scalar, got", "x.sum(), x.mean() and x[i] give scalars"),
    (r"got a scalar|a scalar has", "gc.reshape(x, (1,)) is a vector"),
    (
        r"must (be|have|broadcast|take) |more axes|another axis|vectors|matri(x|ces)",
        "gc.reshape, gc.transpose and gc.expand_dims change the axes",
    ),
)


def usual_hint(what: str, error: type[GraphcError]) -> str | None:
    """The hint for the message `what`, or None where the message says enough."""
    table = _DTYPES if issubclass(error, DTypeError) else _SHAPES
    if not issubclass(error, (DTypeError, ShapeError)):
        return None
    return next((hint for pattern, hint in table if re.search(pattern, what)), None)
