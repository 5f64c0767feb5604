"""Names of dtypes."""

import numpy as np
import pytest

from graphc.errors import DTypeError
from graphc.ir.dtypes import BY_SHORT, as_dtype
from graphc.ir.types import TensorType, parse_type


@pytest.mark.parametrize("short", ["i4", "i8", "u4", "u8"])
def test_what_means_another_type_in_numpy_is_refused(short: str) -> None:
    with pytest.raises(DTypeError, match=rf"{BY_SHORT[short].name}' or '{np.dtype(short).name}"):
        as_dtype(short)


def test_long_and_short_names() -> None:
    for short, dtype in BY_SHORT.items():
        assert as_dtype(dtype.name) == dtype
        assert short in ("i4", "i8", "u4", "u8") or as_dtype(short) == dtype


def test_types_print_and_read_back() -> None:
    for dtype in BY_SHORT.values():
        type = TensorType(dtype, (2, 3))
        assert parse_type(str(type)) == type


def test_a_dtype_has_one_form() -> None:
    """NumPy has two dtypes that are equal to uint64, and two that are equal to int64."""
    for given, want in ((np.ulonglong, np.uint64), (np.longlong, np.int64)):
        assert as_dtype(np.dtype(given)).type is want
        assert as_dtype(given).type is want
