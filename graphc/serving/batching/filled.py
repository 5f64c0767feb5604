"""Inputs of every size in which batches run: with them, no request waits for a compilation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphc.ir.dims import substitute
from graphc.ir.dtypes import Array
from graphc.serving.batching.requests import Arrays, Form
from graphc.serving.batching.sizes import padded_size


def inputs_of_all_sizes(
    form: Form, rows: Sequence[int], examples: Sequence[Arrays]
) -> Iterator[dict[str, Array]]:
    """Inputs for each number of rows, with the other open sizes of the examples and the buckets.

    The values are those of an example, repeated; without one they are zero. Each example occurs.

    Args:
        rows: the sizes of batches; empty if requests are not joined.

    Raises:
        Failure: INVALID_ARGUMENT: an example exceeds the largest bucket.
    """
    known: set[tuple[tuple[str, int], ...]] = set()
    batch = None if form.batch is None or not rows else form.batch.name
    for example in examples:
        sizes = form.check(example)
        others = {name: size for name, size in sizes.run.items() if name != batch}
        key = tuple(sorted(others.items()))
        if batch is None:
            wanted: Sequence[int | None] = [None]
        elif key in known:
            wanted = [padded_size(min(sizes.rows, rows[-1]), rows)]
        else:
            wanted = rows
        known.add(key)
        for count in wanted:
            yield _filled(form, others, batch, count, example)
    wanted_rows: Sequence[int | None] = rows if batch is not None else [None]
    usual = form.check(examples[0]).run if examples else {}
    for others in _bucketed(form, batch, usual):
        if tuple(sorted(others.items())) not in known:
            for count in wanted_rows:
                yield _filled(form, others, batch, count, examples[0] if examples else None)


def _bucketed(form: Form, batch: str | None, usual: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """All combinations of buckets; one if no size has buckets.

    Args:
        usual: the values of sizes without buckets. By default 1, which every artifact allows.
    """
    names = [name for name in form.axes.sizes if name != batch]
    rows = [form.buckets.get(name, (usual.get(name, 1),)) for name in names]
    for sizes in itertools.product(*rows):
        yield dict(zip(names, sizes, strict=True))


def _filled(
    form: Form,
    others: Mapping[str, int],
    batch: str | None,
    count: int | None,
    example: Arrays | None,
) -> dict[str, Array]:
    sizes = dict(others) if batch is None or count is None else {**others, batch: count}
    found = {}
    for name, type in form.axes.inputs.items():
        shape = tuple([int(substitute(dim, sizes)) for dim in type.shape])
        if example is None:
            found[name] = np.zeros(shape, type.dtype)
        else:
            value = example[name]
            places = [np.arange(size) % have for size, have in zip(shape, value.shape, strict=True)]
            found[name] = np.ascontiguousarray(value[np.ix_(*places)]) if shape else value
    return found
