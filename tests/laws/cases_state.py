"""Cases of graphc/ops/structure/state.py and emit.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, GraphError
from graphc.ops.core.emit import DIM_VALUE, cast, constant, emit
from graphc.ops.structure.state import VJP, identity, stop_gradient
from tests.laws.case import Bad, Case, In

TABLE = np.arange(6, dtype=np.float32).reshape(2, 3)


def pulled_back_tanh(x, dy):
    return emit(VJP, (x, dy), op="Tanh", count=1, wrt=(0,), attrs={})


def pulled_back_sum(x, dy):
    attrs = {"axes": (1,), "keepdims": False}
    return emit(VJP, (x, dy), op="ReduceSum", count=1, wrt=(0,), attrs=attrs)


CASES = (
    Case(
        "Identity",
        identity,
        [In((4, 2), batch_axis=0)],
        lambda x: x,
        dtypes=("bool", "int8", "uint32", "bfloat16", "float32", "float64", "complex64"),
    ),
    Case("StopGradient", stop_gradient, [In((4,), batch_axis=0)], lambda x: x),
    Case(
        "Cast",
        lambda x: cast(x, "float64"),
        [In((4, 3), batch_axis=0)],
        lambda x: np.real(x).astype(np.float64),
        dtypes=("bool", "int32", "float16", "float32", "complex64"),
        label="to float64",
        bad=[Bad(lambda x: cast(x, "text"), [In((2,), "float32")], DTypeError, "not a dtype")],
    ),
    Case(
        "Cast",
        lambda x: cast(x, "int16"),
        [In((4, 3), batch_axis=0, low=-9, high=9)],
        lambda x: np.trunc(x).astype(np.int16),
        dtypes=("int64", "uint8", "float32", "float64"),
        gradient=False,
        label="to int16",
    ),
    Case(
        "Cast",
        lambda x: cast(cast(x, "complex128"), "float64") * 2.0,
        [In((3,))],
        lambda x: 2 * x,
        label="there and back",
    ),
    Case(
        "Constant",
        lambda x: (constant(TABLE), x + constant(TABLE)),
        [In((4, 2, 3), batch_axis=0)],
        lambda x: (TABLE, x + TABLE),
        dtypes=("float32",),
        bad=[
            Bad(lambda x: constant("text"), [In((1,), "float32")], DTypeError, "not numeric"),
            Bad(constant, [In((1,), "float32")], GraphError, "is a tensor already"),
        ],
    ),
    Case(
        "DimValue",
        lambda x: x * emit(DIM_VALUE, (), dim=7, dtype=x.dtype),
        [In((4,), batch_axis=0)],
        lambda x: x * 7,
        dtypes=("int32", "float32", "float64"),
    ),
    Case(
        "VJP",
        pulled_back_tanh,
        [In((4,), batch_axis=0), In((4,), batch_axis=0)],
        lambda x, dy: dy * (1 - np.tanh(x) ** 2),
    ),
    Case(
        "VJP",
        pulled_back_sum,
        [In((4, 3), batch_axis=0, grad=False), In((4,), batch_axis=0)],
        lambda x, dy: np.repeat(dy[:, None], 3, 1),
        label="sum",
    ),
)
