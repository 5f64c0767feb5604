"""Cases of graphc/ops/elementwise/bits.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.elementwise import bits as ops
from tests.laws.case import Bad, Case, In

INTEGERS = ("int8", "uint8", "int32", "uint32", "int64")
X = In((4, 3), low=-60, high=60, batch_axis=0)
PLACES = In((4, 1), values=[[0], [1], [3], [7]], batch_axis=0)
NO_FLOATS = Bad(
    lambda x: ops.left_shift(x, 1), [In((3,), "float32")], DTypeError, "must be integers"
)


def shifted(function):
    """The oracle keeps the dtype: NumPy's own shifts would widen an int8 shifted by an int64."""
    return lambda x, n: function(x, n.astype(x.dtype))


CASES = (
    Case("LeftShift", ops.left_shift, [X, PLACES], shifted(np.left_shift), dtypes=INTEGERS,
         gradient=False, bad=[
            NO_FLOATS,
            Bad(ops.left_shift, [In((3,), "int32"), In((4,), "int32")], ShapeError, "broadcast"),
         ]),
    Case("RightShift", ops.right_shift, [X, PLACES], shifted(np.right_shift), dtypes=INTEGERS,
         gradient=False),
    Case("RightShift", lambda x: ops.right_shift(x, 40), [X],
         lambda x: x >> np.asarray(31, x.dtype), dtypes=("int32",), gradient=False,
         label="by more than all bits"),
    Case("Bitcast", lambda x: ops.bitcast(x, "uint32"), [In((4, 3), "float32", batch_axis=0)],
         lambda x: x.astype(np.float32).view(np.uint32), gradient=False, dtypes=("float32",)),
    Case("Bitcast", lambda x: (ops.bitcast(x, "float16"), ops.bitcast(x, "int16")),
         [In((4, 3), "bfloat16", batch_axis=0)], None, gradient=False, dtypes=("bfloat16",),
         label="of 16 bits", bad=[
            Bad(lambda x: ops.bitcast(x, "int64"), [In((3,), "float32")], DTypeError,
                "float32 and int64 have different numbers of bits"),
            Bad(lambda x: ops.bitcast(x, "int8"), [In((3,), "bool")], DTypeError,
                "integer or floating, of 8 bits or more"),
            Bad(lambda x: ops.bitcast(x, "complex64"), [In((3,), "int64")], AttributeValueError,
                "dtype must be integer or floating"),
         ]),
)  # fmt: skip
