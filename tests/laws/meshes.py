"""Runs the law cases on a mesh of devices, with random layouts of their operands and results.

An operand whose size the mesh does not divide is a slice of a longer feed that the mesh divides, as
in `tokens[:, 1:]`; a result is padded accordingly. XLA's partitioner then propagates the layout of
the long tensor to the short one.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphc as gc
from graphc.autodiff.reverse import gradients
from graphc.errors import GradientError
from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.sharding import Entry, Spec, names_of
from graphc.ops.catalogue import FUNCTIONS
from tests.laws.case import Case, In
from tests.laws.harness import Array, as_list, families, make_input, widened

MESHES: tuple[Mapping[str, int], ...] = (
    {"data": 2},
    {"data": 4},
    {"data": 2, "model": 2},
    {"data": 4, "model": 1},
)
CASES = [case for cases in families().values() for case in cases if case.op != "Shard"]
DTYPES = ("float64", "float32", "int32", "complex64", "bool")


@dataclass
class Spread:
    """One graph of several cases for one mesh: feeds and compared values, by title."""

    axes: Mapping[str, int]
    graph: Graph
    feeds: dict[Tensor, Array] = field(default_factory=dict)
    fetches: dict[str, Tensor] = field(default_factory=dict)


def spread(
    cases: Sequence[Case],
    axes: Mapping[str, int],
    seed: int,
    *,
    gradient: bool = True,
    company: bool = True,
    dtype: str | None = None,
) -> Spread:
    """Builds the graph of `cases` with random layouts.

    Args:
        gradient: whether gradients of floating results are compared too.
        company: whether further fetches combine feeds of unrelated cases.
        dtype: for inputs whose dtype is open; by default the first of `DTYPES` that the case
            accepts.
    """
    rng = np.random.default_rng(seed)
    made = Spread(axes, Graph(seed=1))
    with made.graph:
        for i, case in enumerate(cases):
            kinds = [d for d in (dtype, *DTYPES, *case.dtypes) if d in case.dtypes]
            _add(made, case, kinds[0], f"{case.op} {case.label} #{i}", rng, gradient)
        if company:
            _add_company(made, rng)
    return made


def _add(
    made: Spread, case: Case, dtype: str, title: str, rng: np.random.Generator, gradient: bool
) -> None:
    operands, variables = [], []
    for i, given in enumerate(case.inputs):
        seed = zlib.crc32(f"{case.op}/{case.label}/{dtype}/{i}".encode())
        long, short = _operand(made, make_input(given, dtype, seed), given, rng)
        operands.append(short)
        if given.grad and long.type.dtype == np.float64:
            variables.append((i, long))
    results = [_result(made.axes, result, rng) for result in as_list(case.build(*operands))]
    for i, result in enumerate(results):
        made.fetches[f"{title}: result {i}"] = result
    if gradient and case.gradient and _differentiable(results) and variables:
        for i, long in variables:
            with suppress(GradientError):  # no path: the result does not depend on the input
                (adjoint,) = gradients([_weighted(results)], [long])
                made.fetches[f"{title}: gradient of input {i}"] = adjoint


def _differentiable(results: Sequence[Tensor]) -> bool:
    return any(result.type.dtype in (np.float64, np.complex128) for result in results)


def _weighted(results: Sequence[Tensor]) -> Tensor:
    total: Any = 0.0
    for i, result in enumerate(results):
        complex_parts = result.type.dtype == np.complex128
        parts = [FUNCTIONS.real(result), FUNCTIONS.imag(result)] if complex_parts else [result]
        for part in parts:
            if part.type.dtype == np.float64:
                weights = np.random.default_rng(100 + i).uniform(0.5, 1.5, part.type.shape)
                total = total + FUNCTIONS.reduce_sum(part * weights)
    return total


def _operand(
    made: Spread, array: Array, given: In, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """A placeholder whose size the mesh divides, and the operand, a slice of it."""
    spec = random_spec(array.shape, made.axes, rng)
    pads = pads_for(array.shape, spec, made.axes, rng)
    fed = padded(array, pads)
    name = f"in{len(made.feeds)}"
    long = gc.placeholder(fed.shape, fed.dtype, name=name)
    made.feeds[long] = fed
    whole = gc.shard(long, spec) if any(spec) else long
    cut = tuple(slice(a, a + n) for (a, _), n in zip(pads, array.shape, strict=True))
    return long, whole[cut] if any(map(any, pads)) else whole


def padded(array: Array, pads: Sequence[tuple[int, int]]) -> Array:
    """The array with its own elements as padding: operators then see plausible values."""
    if not any(map(any, pads)):
        return array
    return np.pad(array, pads, mode="wrap" if array.size else "constant")


def _result(axes: Mapping[str, int], result: Tensor, rng: np.random.Generator) -> Tensor:
    """The result unchanged, or with a random layout and the padding for it."""
    if rng.random() < 0.4 or not result.type.shape:
        return result
    spec = random_spec(result.type.shape, axes, rng)
    pads = pads_for(result.type.shape, spec, axes, rng)
    if any(map(any, pads)):
        if result.type.dtype.name in ("int4", "uint4"):
            return result
        result = FUNCTIONS.pad(result, pads)
    return gc.shard(result, spec) if any(spec) else result


def random_spec(shape: Sequence[int], axes: Mapping[str, int], rng: np.random.Generator) -> Spec:
    """For each axis of the mesh a random axis of the tensor, or sometimes none."""
    entries: list[list[str]] = [[] for _ in shape]
    for name in rng.permutation(list(axes)):
        if shape and rng.random() < 0.8:
            entries[rng.integers(len(shape))].append(str(name))
    return tuple([_entry(names) for names in entries])


def _entry(names: Sequence[str]) -> Entry:
    return (names[0] if len(names) == 1 else tuple(names)) if names else None


def pads_for(
    shape: Sequence[int], spec: Spec, axes: Mapping[str, int], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """How many elements to add before and after each axis, so that the mesh divides it."""
    return [_pad_for(n, entry, axes, rng) for n, entry in zip(shape, spec, strict=True)]


def _pad_for(
    size: int, entry: Entry, axes: Mapping[str, int], rng: np.random.Generator
) -> tuple[int, int]:
    parts = math.prod(axes[name] for name in names_of(entry))
    missing = -size % parts
    if parts > 1 and not missing and rng.random() < 0.3:
        missing = parts  # divides already, but must still be a slice
    front = int(rng.integers(missing + 1))
    return front, missing - front


def _add_company(made: Spread, rng: np.random.Generator) -> None:
    """Adds a fetch of two feeds at once, which changes how XLA propagates layouts."""
    floats = [t for t in made.feeds if t.type.dtype == np.float64]
    if len(floats) < 2:
        return
    a, b = [floats[i] for i in rng.choice(len(floats), 2, replace=False)]
    made.fetches["company"] = gc.minimum(FUNCTIONS.reduce_sum(a), b)


def compare(made: Spread) -> list[str]:
    """The differences between the mesh and one device: titles, each with the largest difference."""
    names = list(made.fetches)
    fetches = [made.fetches[name] for name in names]
    feeds = _needed(made)
    alone = gc.Session(made.graph).run(fetches, feeds)
    mesh = gc.devices.Mesh(made.axes)
    options = gc.CompileOptions(max_in_flight=1)
    together = gc.Session(made.graph, strategy=mesh, options=options).run(fetches, feeds)
    found = []
    for name, one, other in zip(names, alone, together, strict=True):
        text = differing(np.asarray(one), np.asarray(other))
        if text:
            found.append(f"{name}: {text}")
    return found


def _needed(made: Spread) -> dict[Tensor, Array]:
    """The feeds that a fetch depends on: some cases use only the shape of an operand."""
    reached = set(made.fetches.values())
    for node in reversed(made.graph.nodes):
        if any(result in reached for result in node.outputs):
            reached.update(node.inputs)
    return {tensor: array for tensor, array in made.feeds.items() if tensor in reached}


def differing(one: Array, other: Array) -> str:
    """Describes how two values differ beyond rounding, or returns ""."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{one.dtype}{one.shape} against {other.dtype}{other.shape}"
    if not is_inexact(one.dtype):
        wrong = int(np.sum(one != other))
        return f"{wrong} of {one.size} elements" if wrong else ""
    kind = one.dtype
    one, other = widened(one), widened(other)
    near = 1e-9 if str(kind) in ("float64", "complex128") else 1e-4
    scale = 1.0 + float(np.max(np.abs(one[np.isfinite(one)]), initial=0.0))
    if np.allclose(other, one, rtol=near, atol=near * scale, equal_nan=True):
        return ""
    both = np.isfinite(one) & np.isfinite(other)
    worst = float(np.max(np.abs(one - other)[both], initial=0.0))
    return f"differs by {worst:.3g} of {scale:.3g}"
