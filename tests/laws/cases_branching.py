"""Cases of graphc/ops/control/branching.py and platforms.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, GraphcError, ShapeError
from graphc.ops.control.branching import add_switch, cond, switch
from graphc.ops.control.platforms import platform_index
from graphc.ops.control.scan import scan
from graphc.ops.core.emit import cast
from graphc.ops.elementwise.transcendental import exp, sin, tanh
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.reductions.reduction import reduce_mean, reduce_sum
from tests.laws.case import Bad, Case, In


def chosen(p, x, w):
    """A matrix product in one branch, means over the batch in the other branch."""
    return cond(
        p,
        lambda x: (tanh(matmul(x, w)), reduce_sum(x * x, 0)),
        lambda x: (x - reduce_mean(x, 0), x[0] * 2.0),
        x,
    )


def chosen_oracle(p, x, w):
    return (np.tanh(x @ w), (x * x).sum(0)) if p else (x - x.mean(0), x[0] * 2)


def by_sum(x, y):
    """The predicate is computed from the whole batch; operands and results are nested."""
    found = cond(
        reduce_sum(x) > 0,
        lambda d: {"a": d["a"] * d["b"], "b": d["b"]},
        lambda d: {"a": exp(d["b"]), "b": d["a"]},
        {"a": x, "b": y},
    )
    return found["a"], found["b"]


def by_sum_oracle(x, y):
    return (x * y, y) if x.sum() > 0 else (np.exp(y), x)


def three_ways(i, x):
    return switch(i, [sin, lambda x: x * reduce_sum(x), lambda x: x], x)


def three_ways_oracle(i, x):
    return (np.sin(x), x * x.sum(), x)[int(np.clip(i, 0, 2))]


def nested(x, w):
    """A switch in a cond in a scan, on carries."""

    def step(c, row):
        number = cast(reduce_sum(row), "int32")
        c = cond(
            reduce_sum(c) > 0,
            lambda: switch(number, [lambda: c * w, lambda: sin(c) + row, lambda: row]),
            lambda: c + row,
        )
        return c, reduce_sum(c)

    return scan(step, w, x)


def nested_oracle(x, w):
    c, sums = w, []
    for row in x:
        if c.sum() > 0:
            c = (c * w, np.sin(c) + row, row)[int(np.clip(int(row.sum()), 0, 2))]
        else:
            c = c + row
        sums.append(c.sum())
    return c, np.stack(sums)


def on_platform(x):
    """The branches of the platforms of the tests differ in form, not in value."""
    platforms = "tpu;cpu;others"
    branches = {"a": sin, "b": lambda x: x * 2.0, "c": lambda x: x + x}
    return add_switch("cond", platform_index(platforms), branches, (x,), None, platforms)


CASES = (
    Case(
        "PlatformIndex",
        lambda x: x * cast(platform_index("tpu;others"), x.dtype),
        [In((4,), batch_axis=0)],
        lambda x: x,
    ),
    Case(
        "Switch",
        on_platform,
        [In((4,), batch_axis=0)],
        lambda x: x * 2,
        label="by platform",
    ),
    *(
        Case(
            "Switch",
            chosen,
            [In((), "bool", values=p), In((4, 3), batch_axis=0), In((3, 3))],
            chosen_oracle,
            label=f"cond {p}",
        )
        for p in (True, False)
    ),
    Case(
        "Switch",
        by_sum,
        [In((4, 2), batch_axis=0), In((4, 2), batch_axis=0)],
        by_sum_oracle,
        dtypes=("float32", "float64", "bfloat16"),
        label="computed predicate",
    ),
    *(
        Case(
            "Switch",
            three_ways,
            [In((), kind, values=i), In((4,), batch_axis=0)],
            three_ways_oracle,
            dtypes=("float64",),
            label=f"index {i}",
        )
        for i, kind in ((-3, "int32"), (0, "uint8"), (1, "int64"), (2, "int32"), (300, "uint32"))
    ),
    Case("Switch", nested, [In((6, 3), low=-1.0), In((3,), low=0.1)], nested_oracle),
    Case(
        "Switch",
        lambda x: cond(True, lambda: x, lambda: x * 2.0),
        [In((4,), batch_axis=0)],
        lambda x: x,
        label="known predicate",
        bad=[
            Bad(
                lambda x: cond(x, lambda: x, lambda: x),
                [In((2,), "bool")],
                ShapeError,
                r"predicate must be a bool scalar, got bool\[2\]",
            ),
            Bad(
                lambda x: cond(x, lambda: x, lambda: x),
                [In((), "float32")],
                DTypeError,
                r"predicate must be a bool scalar, got f32\[\]",
            ),
            Bad(
                lambda x: switch(x, [lambda: x]),
                [In((), "float32")],
                DTypeError,
                r"index must be an integer scalar, got f32\[\]",
            ),
            Bad(
                lambda x: switch(x, [lambda: x]),
                [In((3,), "int32", low=0)],
                ShapeError,
                r"index must be an integer scalar, got i32\[3\]",
            ),
            Bad(lambda: switch(0, []), [], AttributeValueError, "there are no branches"),
            Bad(
                lambda x: cond(True, lambda: x, lambda: (x, x)),
                [In((2,), "float32")],
                GraphcError,
                "false_branch returns .* true_branch returns",
            ),
            Bad(
                lambda x: cond(True, lambda: x, lambda: reduce_sum(x)),
                [In((2,), "float32")],
                ShapeError,
                r"result 0 is f32\[\] from false_branch and f32\[2\] from true_branch",
            ),
            Bad(
                lambda x: switch(0, [lambda: x, lambda: x, lambda: cast(x, "int32")]),
                [In((2,), "float32")],
                DTypeError,
                r"result 0 is f32\[2\] from branch0 and i32\[2\] from branch2",
            ),
            Bad(
                lambda x: cond(True, lambda: x, lambda: x[:2]),
                [In((3,), "float32")],
                ShapeError,
                "sizes of result 0 of false_branch and true_branch differ, 2 and 3",
            ),
            Bad(
                lambda x: cond(True, lambda y: y, lambda y: y, "text"),
                [In((3,), "float32")],
                DTypeError,
                "'text' is not numeric",
            ),
        ],
    ),
)
