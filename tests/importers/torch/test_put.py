"""Values put at masks and indices: of rows, of scalars, of bools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import graphc as gc  # noqa: E402
from graphc.errors import ModelImportError  # noqa: E402
from tests.importers.torch.test_operators import Function  # noqa: E402

X = torch.arange(24.0).reshape(2, 3, 4)
OF_ROWS = torch.tensor([[True, False, True], [False, True, True]])
OF_COLUMNS = torch.tensor([True, False, True])
ONE, TWICE = torch.tensor([0]), torch.tensor([0, 0])
TRUE, FALSE = torch.tensor(True), torch.tensor(False)
BOOLS = torch.tensor([False, True, True])
PLACES = torch.tensor([0, 0, 1])


def put(x: Any, mask: Any, values: Any) -> Any:
    return x.index_put((mask,), values)


def added(x: Any, mask: Any, values: Any) -> Any:
    return x.index_put((mask,), values, accumulate=True)


def put_in_columns(x: Any, mask: Any, values: Any) -> Any:
    y = x.clone()
    y[:, mask] = values
    return y


def put_last(x: Any, mask: Any, values: Any) -> Any:
    y = x.clone()
    y[..., mask] = values
    return y


def scatter(reduce: str, **options: Any) -> Any:
    return lambda x, places, values: x.scatter_reduce(0, places, values, reduce, **options)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a scalar": (put, (X, OF_ROWS, torch.tensor(3.0))),
    "one row for all": (put, (X, OF_ROWS, -torch.arange(4.0))),
    "one row for all, with its axis": (put, (X, OF_ROWS, -torch.arange(4.0)[None])),
    "a row for each": (put, (X, OF_ROWS, -torch.arange(16.0).reshape(4, 4))),
    "an element for each row": (put, (X, OF_ROWS, -torch.arange(4.0)[:, None])),
    "an element for each": (put, (X, X > 5, -torch.arange(18.0))),
    "no places": (put, (X, OF_ROWS & False, torch.ones(4))),
    "no places, no values": (put, (X, X > 50, torch.zeros(0))),
    "rows added": (added, (X, OF_ROWS, -torch.arange(16.0).reshape(4, 4))),
    "rows of bools added": (added, (X > 4, OF_ROWS, torch.ones(4) > 0)),
    "columns": (put_in_columns, (X, OF_COLUMNS, -torch.arange(16.0).reshape(2, 2, 4))),
    "one row for all columns": (put_in_columns, (X, OF_COLUMNS, -torch.arange(4.0))),
    "the last axis": (put_last, (X, torch.arange(4) > 1, -torch.arange(2.0))),
    "bools twice at one place": (added, (X > 4, TWICE, X > 2)),
    "bools in a row": (
        lambda x, i, v: x.put(i, v, accumulate=True),
        (X > 4, TWICE, torch.tensor([True, False])),
    ),
    "bools by index_add": (lambda x, i, v: x.index_add(1, i, v), (X > 4, TWICE, X[:, :2] > -1)),
    "bools by scatter_add": (lambda x, i, v: x.scatter_add(0, i, v), (BOOLS, PLACES, ~BOOLS)),
    "product of bools": (scatter("prod"), (BOOLS, PLACES, ~BOOLS)),
    "least of bools": (scatter("amin"), (BOOLS, PLACES, ~BOOLS)),
    "greatest of bools alone": (scatter("amax", include_self=False), (BOOLS, PLACES, ~BOOLS)),
    "sum of bools alone": (scatter("sum", include_self=False), (BOOLS, PLACES, ~BOOLS)),
    "a mask of bytes": (
        put,
        (X, OF_ROWS.to(torch.uint8) * 2, -torch.arange(16.0).reshape(4, 4)),
    ),
    "mean of complex numbers": (lambda x: torch.var_mean(x, 1)[1], (torch.complex(X, X + 1),)),
    "bool scalars": (scatter("prod"), (TRUE, ONE, FALSE[None])),
    "sum of scalars": (scatter("sum"), (X[0, 0, 1], TWICE, X[0, 0, 2:])),
    "sum of scalars, all of them": (scatter("sum"), (X[0, 0, 1], ONE[0], X[0, 0, 2])),
    "mean of scalars": (scatter("mean", include_self=False), (X[0, 0, 1], ONE, X[0, 0, 2:3])),
    "a scalar put": (lambda x, i: x.scatter(0, i, 3.0), (X[0, 0, 1], ONE)),
    "signs of bools": (lambda x: x.sign() ^ x.sgn() ^ x.signbit() ^ (x.square() > 0), (X > 3,)),
}


@pytest.mark.parametrize("case", CASES)
def test_values_are_put_as_in_pytorch(case: str) -> None:
    function, operands = CASES[case]
    want = function(*operands).numpy()
    alone = gc.from_torch(Function(function), operands).to_graph()
    feeds = {x: value.numpy() for x, value in zip(alone.inputs.values(), operands, strict=True)}
    (output,) = alone.outputs.values()
    got = np.asarray(gc.Session(alone.graph, unused_feeds="ignore").run(output, feeds))
    assert got.dtype == want.dtype and np.array_equal(got, want)


def test_a_mask_beside_other_indices_is_refused() -> None:
    def both(x: Any, mask: Any, places: Any) -> Any:
        return x.index_put((places, mask), torch.tensor(0.0))

    operands = X, OF_COLUMNS, ONE
    with pytest.raises(ModelImportError, match="by a mask and other indices is not supported"):
        gc.from_torch(Function(both), operands)
