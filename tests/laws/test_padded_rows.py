"""Appended rows change no other row wherever `devices.row_proof` holds.

Each case of the catalogue is built with an open size along each axis in turn. If the proof holds,
the case runs with its own rows, and with more rows that contain garbage, NaN or the largest
numbers. The rows of the case must stay the same, also at another position if the proof allows it.
If only the content of the appended rows differs, every bit must stay the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from graphc.build.placeholders import placeholder
from graphc.devices.row_proof import RowProof, prove_rows
from graphc.errors import GraphcError
from graphc.ir.dtypes import is_complex, is_integer
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.lowering.emit_jax import to_function
from tests.laws.case import Case
from tests.laws.harness import (
    Array,
    as_list,
    functional,
    make_input,
    random_state,
    tolerance,
    widened,
)
from tests.laws.test_laws import BY_OP
from tests.near import assert_near

SIZE = "rows"
APPENDED = 3
# The minimum number of operators that must be proved for some axis. This fails only if the proof
# becomes weaker: then add layout rules, not refusals.
PROVED_AT_LEAST = 200
# JAX iterates until all elements have converged, so more iterations may change the last bits.
ITERATES = {"Betainc"}


@dataclass(frozen=True)
class Claim:
    """A case along one axis, for which the proof holds."""

    case: Case
    program: Program
    proof: RowProof
    anywhere: bool
    arrays: list[Array]
    rows: int

    @property
    def title(self) -> str:
        return f"{self.case.op} {self.case.label} {dict(self.proof.inputs)}"

    def axis(self, i: int) -> int | None:
        return self.proof.inputs.get(f"in{i}")

    def padded(self, fill: str, before: int) -> list[Array]:
        """The arrays with `before` appended rows before them and the others after them."""
        values = []
        for i, array in enumerate(self.arrays):
            axis = self.axis(i)
            if axis is None:
                values.append(array)
                continue
            widths = [(0, 0)] * array.ndim
            widths[axis] = (before, APPENDED - before)
            holds = np.pad(np.ones(array.shape, bool), widths)
            more = np.pad(array, widths)
            more[~holds] = filling(fill, array.dtype, int((~holds).sum()))
            values.append(more)
        return values

    def real(self, results: list[Array], before: int) -> list[Array]:
        """The rows of the case in results that have more rows."""
        found = []
        for place, value in zip(self.proof.outputs, results, strict=True):
            if place is not None:
                each = place.elements
                assert isinstance(each, int)
                assert value.shape[place.axis] == each * (self.rows + APPENDED), self.title
                rows = np.arange(before * each, (before + self.rows) * each)
                value = np.take(value, rows, place.axis)
            found.append(value)
        return found

    def check(self, expected: list[Array], got: list[Array], fill: str, *, bits: bool) -> None:
        for want, have in zip(expected, got, strict=True):
            near: Any = {"rtol": 0.0} if bits else tolerance(self.case, want.dtype)
            what = f"{self.title}: {fill}"
            assert_near(widened(have), widened(want), each=True, err_msg=what, **near)


def filling(fill: str, dtype: Any, count: int) -> Array:
    rng = np.random.default_rng(count)
    if dtype == np.bool_:
        return rng.random(count) < 0.5
    if is_integer(dtype):
        ends = np.iinfo(dtype) if dtype.kind in "iu" else None
        # Not the smallest number itself: JAX's gcd of it with itself never ends.
        low, high = (ends.min + 1, ends.max) if ends else (-8 * (dtype.name[0] != "u"), 7)
        edge = {"garbage": 1, "nan": low, "largest": high}[fill]
        return np.full(count, edge, dtype)
    if fill == "garbage":
        return (rng.standard_normal(count) * 1e3).astype(dtype)
    value = np.nan if fill == "nan" else np.inf
    return np.full(count, complex(value, value) if is_complex(dtype) else value).astype(dtype)


def choices(case: Case) -> Iterator[dict[int, int]]:
    """Which axis of which inputs gets the open size: all batch axes together, each axis of one
    input alone, and equal axes of all inputs that have as many elements there."""
    seen = set()
    shapes = [spec.shape for spec in case.inputs]
    batch = {i: s.batch_axis for i, s in enumerate(case.inputs) if s.batch_axis is not None}
    single = [{i: axis} for i, shape in enumerate(shapes) for axis in range(len(shape))]
    alike = [
        {
            j: len(other) - len(shapes[i]) + axis
            for j, other in enumerate(shapes)
            if 0 <= len(other) - len(shapes[i]) + axis < len(other)
            and other[len(other) - len(shapes[i]) + axis] == shapes[i][axis]
        }
        for one in single
        for i, axis in one.items()
    ]
    for chosen in (batch, *single, *alike):
        sizes = {shapes[i][axis] for i, axis in chosen.items()}
        key = tuple(sorted(chosen.items()))
        if key and key not in seen and len(sizes) == 1 and sizes.pop() > 1:
            seen.add(key)
            yield chosen


def claims_of(case: Case) -> Iterator[Claim]:
    arrays = [
        make_input(spec, case.dtypes[0], zlib.crc32(f"{case.op}/{i}".encode()))
        for i, spec in enumerate(case.inputs)
    ]
    for chosen in choices(case):
        with Graph(seed=1) as graph:
            tensors = []
            for i, array in enumerate(arrays):
                shape: list[Any] = list(array.shape)
                if i in chosen:
                    shape[chosen[i]] = SIZE
                tensors.append(placeholder(tuple(shape), array.dtype, name=f"in{i}"))
            try:
                outputs = [t for t in as_list(case.build(*tensors)) if isinstance(t, Tensor)]
                program = functional(graph, outputs, tensors)
            except (GraphcError, TypeError, ValueError):
                continue  # the case needs the size
        rows = next(arrays[i].shape[axis] for i, axis in chosen.items())
        for anywhere in (True, False):
            proof = prove_rows(program, SIZE, anywhere=anywhere)
            if proof.holds:
                yield Claim(case, program, proof, anywhere, arrays, rows)
                break


CLAIMS: dict[str, list[Claim]] = {}


def found(op: str) -> list[Claim]:
    if op not in CLAIMS:
        CLAIMS[op] = [claim for case in BY_OP[op] for claim in claims_of(case)]
    return CLAIMS[op]


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("op", sorted(BY_OP))
def test_appended_rows_change_no_other_row(op: str) -> None:
    claims = found(op)

    @jax.jit  # one compilation per operator
    def compute(feeds: list[tuple[list[Any], list[Any]]]) -> list[Any]:
        results = []
        for claim, (own, more) in zip(claims, feeds, strict=True):
            for values, rows in ((own, claim.rows), (more, claim.rows + APPENDED)):
                program = bind_sizes(claim.program, {SIZE: rows})
                count = len(program.ports("fetch"))
                results.append(to_function(program)(*values, *random_state(program))[:count])
        return results

    bits: dict[int, list[Array]] = {}  # with the same number of rows, every bit is equal
    for fill, before in (("garbage", 0), ("nan", 0), ("largest", 0), ("garbage", 2)):
        starts = [before if claim.anywhere else 0 for claim in claims]
        with jax.enable_x64(True):
            feeds = [
                (claim.arrays, claim.padded(fill, start))
                for claim, start in zip(claims, starts, strict=True)
            ]
            results = [[np.asarray(r) for r in row] for row in compute(feeds)]
        for i, claim in enumerate(claims):
            real = claim.real(results[2 * i + 1], starts[i])
            claim.check(results[2 * i], real, fill, bits=False)
            if starts[i] == 0 and op not in ITERATES:
                claim.check(bits.setdefault(i, real), real, fill, bits=True)


def test_most_operators_are_proved_for_some_axis() -> None:
    proved = [op for op in BY_OP if found(op)]
    assert len(proved) >= PROVED_AT_LEAST, sorted(set(BY_OP) - set(proved))
