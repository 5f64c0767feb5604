"""Every operator with every layout that its operands can have: results equal those of one device.

The law suite shards only the batch. Here, each operand of each case is sharded along any axis, or
is a partial sum or maximum over the replicas, first alone and then together with the others.
"""

import zlib

import numpy as np
import pytest

from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.ir.dtypes import is_floating
from graphc.ir.graph import Graph
from graphc.ops.catalogue import CATALOGUE, FUNCTIONS
from graphc.ops.core.layout_rules import elementwise
from graphc.runtime.session import Session
from tests.laws.harness import as_list, families, make_input, tolerance, widened
from tests.near import assert_near

REPLICAS = 2
FEW, FEWER = 3, 2
DTYPES = ("float64", "float32", "int32", "complex64", "bool")
FAMILIES = {
    name: [case for case in cases if case.layout and case.oracle is not None]
    for name, cases in families().items()
}

Layouts = tuple[object, ...]  # per operand: "whole", an axis, "sum" or "max"


def possible(array):
    """Returns the layouts that an operand of this value can have."""
    found = [axis for axis, size in enumerate(array.shape) if size > 1]  # even or uneven
    if array.dtype.itemsize >= 4 and np.all(np.isfinite(array)):  # narrow integers have wider sums
        found.append("sum")
    if is_floating(array.dtype):
        found.append("max")
    return found


def variants(case, arrays, first: bool) -> list[Layouts]:
    """Varies the layout of each operand alone, then some layouts of all operands together.

    Args:
        first: Whether this is the operator's first case. Other cases get a few layouts, and the
            90 operators with a common rule get fewer: each layout occurs with dozens of them.
    """
    plain = CATALOGUE[case.op].layout is elementwise
    first, few = first and not plain, FEWER if plain else FEW
    whole = ["whole"] * len(arrays)
    choices = [possible(array) for array in arrays]
    for row in choices[1:]:  # one operand as a maximum is enough, as few rules handle it
        if "max" in row:
            row.remove("max")
    found = [
        (*whole[:i], layout, *whole[i + 1 :]) for i, row in enumerate(choices) for layout in row
    ]
    rng = np.random.default_rng(zlib.crc32(f"{case.op}/{case.label}".encode()))
    if not first and len(found) > few:
        found = [found[i] for i in sorted(rng.permutation(len(found))[:few])]
    if len(arrays) > 1:
        for _ in range(2 if first else 1):
            picks = [int(rng.integers(len(row) + 1)) for row in choices]
            found.append(tuple(["whole", *row][p] for row, p in zip(choices, picks, strict=True)))
    return [v for v in dict.fromkeys(found) if any(layout != "whole" for layout in v)]


def operand(array, layout, name):
    """A tensor with this layout whose value is `array`, its placeholder, and the fed value."""
    if layout in ("sum", "max"):
        if layout == "sum":  # 2 a - a is exactly a, and no operator folds it
            terms = np.stack([array + array, -array])
        else:
            terms = np.stack([array - 1, array])
        fed = placeholder(terms.shape, terms.dtype, name=name, batch_axis=0)
        reduce = FUNCTIONS.reduce_sum if layout == "sum" else FUNCTIONS.reduce_max
        return reduce(fed, 0), fed, terms.astype(array.dtype)
    axis = None if layout == "whole" else layout
    fed = placeholder(array.shape, array.dtype, name=name, batch_axis=axis)
    return fed, fed, array


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("family", sorted(name for name, cases in FAMILIES.items() if cases))
def test_every_layout(family: str) -> None:
    graph = Graph(seed=1)
    feeds, fetches, expected, seen = {}, [], [], set()
    with graph:
        for i, case in enumerate(FAMILIES[family]):
            dtype = next(d for d in (*DTYPES, *case.dtypes) if d in case.dtypes)
            arrays = [make_input(spec, dtype, 100 + k) for k, spec in enumerate(case.inputs)]
            wanted = as_list(case.oracle(*map(widened, arrays)))
            for v, layouts in enumerate(variants(case, arrays, case.op not in seen)):
                tensors = []
                for k, (array, layout) in enumerate(zip(arrays, layouts, strict=True)):
                    tensor, fed, value = operand(array, layout, f"in{i}_{v}_{k}")
                    tensors.append(tensor)
                    feeds[fed] = value
                title = f"{case.op} {case.label} {dtype} {layouts}"
                for result, want in zip(as_list(case.build(*tensors)), wanted, strict=True):
                    fetches.append(result)
                    expected.append((title, case, want))
            seen.add(case.op)
    options = CompileOptions(xla_options={"xla_backend_optimization_level": 0})  # compiles faster
    got = Session(graph, strategy=DataParallel(REPLICAS), options=options).run(fetches, feeds)
    for value, (title, case, want) in zip(got, expected, strict=True):
        near = tolerance(case, value.dtype)
        assert_near(widened(np.asarray(value)), want, **near, err_msg=title)
