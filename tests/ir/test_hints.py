"""The default hints of errors."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir import foreign_arguments, foreign_members, foreign_names
from graphc.ir.hints import usual_hint


@pytest.mark.parametrize(
    ("what", "error", "hint"),
    [
        ("axis 3 is out of range for rank 2", ShapeError, "-1 is the last one"),
        ("axis 0 is out of range for rank 0", ShapeError, "a scalar has no axes"),
        ("shapes (2) and (3) do not broadcast together", ShapeError, "must be equal or 1"),
        ("channels of x and scale differ, 3 and 4", ShapeError, "gc.reshape"),
        ("x must be [batch, height, width, channels], got f32[3]", ShapeError, "gc.expand_dims"),
        ("taus must be a vector, got a scalar", ShapeError, "gc.reshape(x, (1,))"),
        ("there are no elements to reduce", ShapeError, "x.shape"),
        ("p must be floating, got int32", DTypeError, 'gc.cast(x, "float32")'),
        ("places must be integers", DTypeError, 'gc.cast(x, "int32")'),
        ("operands must have one dtype, got int32 and float32", DTypeError, "of the other"),
        ("the mask must be bool, got float32", DTypeError, "x > 0"),
    ],
)
def test_usual_hint(what, error, hint):
    assert hint in usual_hint(what, error)


def test_other_errors_have_no_usual_hint():
    assert usual_hint("axis 3 is out of range for rank 2", AttributeValueError) is None
    assert usual_hint("a message of another kind", ShapeError) is None


def test_operators_and_functions_have_it():
    with gc.Graph():
        with pytest.raises(ShapeError, match=r"hint: gc\.reshape, gc\.transpose and gc\.expand"):
            gc.nn.rgb_to_hsv(gc.ones((2, 2)))
        with pytest.raises(ShapeError, match=r"hint: gc\.reshape, gc\.transpose or slice one"):
            gc.linalg.solve(gc.eye(3), gc.ones((2, 2)))


def test_an_own_hint_comes_first():
    with gc.Graph(), pytest.raises(ShapeError, match="hint: b needs 4 rows to follow a"):
        gc.matmul(np.ones((3, 4), "float32"), np.ones((3, 4), "float32"))


@pytest.mark.parametrize(
    "rows",
    [
        foreign_arguments._REMARKS, foreign_arguments._KEYWORDS, *foreign_members._MEMBERS.values(),
        foreign_names._ATTRIBUTES, foreign_names._ASSIGNMENTS, foreign_names._FUNCTIONS,
    ],
)  # fmt: skip
def test_names_of_other_libraries_stand_in_one_row(rows):
    names = [name for row in rows for name in row.split()]
    assert len(names) == len(set(names))
