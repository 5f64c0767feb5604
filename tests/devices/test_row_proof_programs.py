"""Generated programs: where the proof holds, appended rows change no other row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.devices.row_proof import prove_rows
from graphc.errors import GraphcError
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.lowering.emit_jax import to_function
from tests.laws.harness import functional
from tests.near import assert_near

ROWS, APPENDED, WIDTH = 5, 3, 4
Step = Callable[..., Any]


def scanned(axis: int) -> Step:
    def step(x: Tensor) -> Tensor:
        xs = x if axis == 0 else gc.transpose(x)
        return gc.scan(lambda c, v: (gc.tanh(c + v), c * v), gc.zeros_like(xs[0]), xs)[1]

    return step


def looped(x: Tensor) -> Tensor:
    return gc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, gc.sin(c[1])), (0, x))[1]


def counted(x: Tensor) -> Tensor:
    most = gc.cast(gc.reduce_max(gc.abs(x)), "int32") % 4
    return gc.while_loop(lambda c: c[0] < most, lambda c: (c[0] + 1, c[1] + 1.0), (0, x))[1]


def branched(x: Tensor) -> Tensor:
    return gc.cond(gc.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)


W = np.linspace(-1, 1, WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
ONE: dict[str, Step] = {
    "tanh": gc.tanh,
    "nan": lambda x: gc.log(x),
    "dense": lambda x: x @ W,
    "transpose": gc.transpose,
    "softmax 0": lambda x: gc.softmax(x, axis=0),
    "softmax 1": lambda x: gc.softmax(x, axis=-1),
    "cumsum 0": lambda x: gc.cumsum(x, 0),
    "cumsum 1": lambda x: gc.cumsum(x, -1),
    "sort": lambda x: gc.sort(x, -1),
    "mean 0": lambda x: x - gc.reduce_mean(x, 0, keepdims=True),
    "mean 1": lambda x: x - gc.reduce_mean(x, -1, keepdims=True),
    "max 1": lambda x: gc.reduce_max(x, -1, keepdims=True) + gc.zeros_like(x),
    "flat": lambda x: gc.reshape(gc.reshape(x, (-1,)), x.shape),
    "halves": lambda x: gc.reshape(x, (-1, 2)),
    "wider": lambda x: gc.reshape(x, (-1, WIDTH)),
    "row numbers": lambda x: x * gc.cast(gc.iota(x.shape, 0), "float32"),
    "column numbers": lambda x: x * gc.cast(gc.iota(x.shape, 1), "float32"),
    "size": lambda x: x / x.shape[0],
    "first": lambda x: x + x[:1],
    "tail": lambda x: x[1:],
    "reverse 0": lambda x: x[::-1],
    "reverse 1": lambda x: x[:, ::-1],
    "column": lambda x: x * x[:, :1],
    "pad": lambda x: gc.pad(x, ((0, 0), (1, 0)))[:, :-1],
    "take": lambda x: gc.take(x, np.array([1, 0]), axis=1),
    "look up": lambda x: gc.take(W, gc.cast(gc.abs(x[:, 0]), "int32") % WIDTH, axis=0),
    "best": lambda x: gc.one_hot(gc.argmax(x, axis=-1), WIDTH),
    "scan 0": scanned(0),
    "scan 1": scanned(1),
    "map": lambda x: gc.map_fn(lambda row: row * gc.sum(row), x),
    "loop": looped,
    "counted": counted,
    "cond": branched,
    "call": gc.function(lambda x: gc.exp(-x * x) + gc.zeros(x.shape)),
    "norm": nn.relu,
}
TWO: dict[str, Step] = {
    "add": gc.add,
    "multiply": gc.multiply,
    "where": lambda a, b: gc.where(a > b, a, b),
    "gram": lambda a, b: a @ gc.transpose(b),
    "pairs": lambda a, b: gc.reduce_sum(a[:, None, :] * b[:, :, None], axis=1),
    "cat 0": lambda a, b: gc.concat([a, b], 0),
    "cat 1": lambda a, b: gc.concat([a, b], 1),
    "einsum": lambda a, b: gc.einsum("ij,ij->i", a, b)[:, None] * a,
    "gather": lambda a, b: gc.take(a, gc.cast(b[:, 0], "int32"), axis=0),
}


MIXING = [
    *("softmax 0", "cumsum 0", "mean 0", "size", "first", "tail", "reverse 0", "scan 0"),
    *("counted", "cond", "gram", "cat 0", "gather", "transpose", "row numbers"),
]
ROWWISE = sorted({*ONE, *TWO} - {*MIXING})


def generated(seed: int, anywhere: bool) -> tuple[Program | None, list[Any], int, int]:
    """A random program that returns all proved values; the row axes of these values; how many
    values were proved and how many refused."""
    rng = np.random.default_rng(seed)
    with gc.Graph(seed=seed) as graph:
        x = gc.placeholder(("rows", WIDTH), name="x")
        pool: list[Tensor] = [x]
        while len(pool) < 14:
            a, b = (pool[-1 - int(rng.integers(min(4, len(pool))))] for _ in range(2))
            name = str(rng.choice(MIXING if rng.random() < 0.08 else ROWWISE))
            try:
                found = ONE[name](a) if name in ONE else TWO[name](a, b)
            except (GraphcError, TypeError):
                found = gc.sin(a)  # the random operator does not fit these shapes
            if found.ndim == 2:
                pool.append(found)
    fetches, places, refused = [], [], 0
    for tensor in pool[1:]:
        proof = prove_rows(functional(graph, [tensor], [x]), "rows", anywhere=anywhere)
        if proof.holds:
            fetches.append(tensor)
            places.append(proof.outputs[0])
        refused += not proof.holds
    program = functional(graph, fetches, [x]) if fetches else None
    return program, places, len(fetches), refused


def results(program: Program, x: Any) -> list[Any]:
    bound = bind_sizes(program, {"rows": len(x)})
    return [np.asarray(value) for value in jax.jit(to_function(bound))(x)]


@pytest.mark.slow
@pytest.mark.parametrize("anywhere", [True, False])
def test_generated_programs(anywhere: bool) -> None:
    proved = refused = 0
    for seed in range(10):
        program, places, held, not_held = generated(seed + 1000 * anywhere, anywhere)
        proved, refused = proved + held, refused + not_held
        if program is None:
            continue
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
        expected = results(program, x)
        for fill, before in ((7.0, 0), (np.nan, 0), (np.inf, 2)):
            start = before if anywhere else 0
            more = np.full((ROWS + APPENDED, WIDTH), fill, np.float32)
            more[start : start + ROWS] = x
            for place, want, got in zip(places, expected, results(program, more), strict=True):
                if place is not None:
                    kept = np.arange(start * place.elements, (start + ROWS) * place.elements)
                    got = np.take(got, kept, place.axis)
                assert_near(got, want, rtol=1e-5, atol=1e-6, err_msg=f"{seed}: {fill}")
    assert proved > 40 and refused > 40, (proved, refused)


@pytest.mark.parametrize(
    "name", ["softmax 0", "cumsum 0", "mean 0", "size", "reverse 0", "counted", "cond", "gather"]
)
def test_what_is_refused_does_change(name: str) -> None:
    """Ensures that the test above can fail. A cumulative sum changes at another position."""
    with gc.Graph() as graph:
        x = gc.placeholder(("rows", WIDTH), name="x")
        y = ONE[name](x) if name in ONE else TWO[name](x, x)
    program = functional(graph, [y], [x])
    assert not prove_rows(program, "rows").holds
    own = np.random.default_rng(1).uniform(-0.9, 0.9, (ROWS, WIDTH)).astype(np.float32)
    garbage = np.full((APPENDED, WIDTH), 1002.0, np.float32)
    (expected,) = results(program, own)
    (after,) = results(program, np.concatenate([own, garbage]))
    (before,) = results(program, np.concatenate([garbage, own]))
    changed = np.abs(after[:ROWS] - expected).max(), np.abs(before[APPENDED:] - expected).max()
    assert max(changed) > 1e-3
