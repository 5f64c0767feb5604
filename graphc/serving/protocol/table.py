"""JSON bodies that contain one table of numbers, read without an object of Python for each number.

pysimdjson does this, if it is installed. It reads a number as `float` does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from graphc.ir.dtypes import Array, DType

_EXACT: Final = 2.0**53  # smaller integers are exact as float64
_STARTS: Final = ((b'{"instances"', "instances"), (b'{"inputs"', "inputs"))


class Table(NamedTuple):
    """The body `{key: values}`.

    Attributes:
        key: "instances" or "inputs".
        values: f64[rows, columns].
    """

    key: str
    values: Array

    def cast(self, dtype: DType) -> Array | None:
        """The values with a dtype; None unless it is one of NumPy's floats and each value is in its
        range. Large integers are left to others, because they are rounded twice here."""
        if dtype.kind != "f":
            return None
        bound = min(_EXACT, float(np.finfo(dtype).max))
        if self.values.max() > bound or self.values.min() < -bound:
            return None
        return self.values.astype(dtype, copy=False)


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        import simdjson
    except ImportError:
        return None
    return simdjson


def read_table(data: bytes) -> Table | None:
    """The table of a body like `{"instances": [[1.5, 2], [3, 4]]}`; None for any other body, also
    for a wrong one, and without pysimdjson."""
    key = next((key for start, key in _STARTS if data.startswith(start)), None)
    library = _library()
    if key is None or library is None:
        return None
    try:
        document = library.Parser().parse(data)
        rows = document[key]
        if not isinstance(rows, library.Array):
            return None
        count = len(rows)
        # With a bracket for each row, and a length for each, no list is nested deeper. (Strings
        # and objects have lengths too, but are no numbers for `as_buffer`.)
        if len(document) != 1 or data.count(b"[") != count + 1 or len({*map(len, rows)}) != 1:
            return None
        values = np.frombuffer(rows.as_buffer(of_type="d"), np.float64)
    except (ValueError, TypeError, RuntimeError, KeyError):
        return None
    return Table(key, values.reshape(count, -1)) if values.size else None
