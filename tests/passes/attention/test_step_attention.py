"""Step attention: how long attentions are computed in steps on each platform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.ir.program import Program
from graphc.passes.attention import attention_steps
from graphc.passes.attention.attention_steps import StepAttention
from graphc.passes.core.target import Target
from graphc.runtime.targets.prepare import prepare
from tests.near import assert_near

CPU, GPU = Target("cpu"), Target("gpu")


def attention(shape: tuple[int, ...], dtype: str = "float32", **options: Any) -> Program:
    """The attention of a sequence to itself, and its gradient."""
    with gc.Graph() as graph:
        x = gc.placeholder(shape, dtype)
        if "mask" in options:
            options["mask"] = gc.placeholder((shape[0], 1, 1, shape[1]), "bool", name="mask")
        if "bias" in options:
            options["bias"] = gc.placeholder((1, shape[2], 1, 1), options["bias"], name="bias")
        y = gc.nn.attention(x, x, x, **options)
        slope = gc.gradients(gc.reduce_sum(y), x)
        feeds = [x, *(options[name] for name in ("mask", "bias") if name in options)]
    return prepare(graph, [y, slope], feeds, CompileOptions()).program


def found(program: Program, target: Target) -> list[tuple[str, Any]]:
    """The attributes that differ from their defaults; both operators have the same ones."""
    result = StepAttention(target).run(program)
    each = [
        [(name, n.attrs[name]) for name in ("rows", "each_entry", "flash") if n.attrs[name]]
        for n in result.program.nodes
        if n.op.name.startswith("Attention")
    ]
    assert len(each) == 2
    assert each[0] == each[1]
    assert result.changed == (2 if each[0] else 0)
    again = StepAttention(target).run(result.program)
    assert again.program is result.program
    return each[0]


LONG = (1, 2048, 2, 64)
ROWS = [("rows", 128)]
FLASH = [("flash", True)]


@pytest.mark.parametrize(
    ("program", "target", "wanted"),
    [
        (attention(LONG), CPU, ROWS),
        (attention(LONG), Target("any"), ROWS),
        (attention(LONG), GPU, []),
        (attention((1, 512, 2, 64)), CPU, []),  # few weights
        (attention((64, 128, 16, 64)), CPU, []),  # many, but short
        (attention((4, 512, 8, 64)), CPU, [*ROWS, ("each_entry", True)]),
        (attention((4, 512, 8, 64)), Target("cpu", 4), []),  # each replica has one entry
        (attention((1, 16384, 8, 64)), CPU, [("rows", 64)]),
        (attention((1, 16384, 8, 64)), GPU, [("rows", 64)]),
        (attention(LONG, dropout=0.5, seed=1), CPU, ROWS),
        (attention(LONG, "bfloat16"), GPU, FLASH),
        (attention(LONG, "float16", causal=True), GPU, FLASH),
        (attention(LONG, "bfloat16", mask=True), GPU, FLASH),
        (attention(LONG, "bfloat16", mask=True, causal=True), GPU, []),
        (attention(LONG, "bfloat16", bias="bfloat16"), GPU, FLASH),
        (attention(LONG, "bfloat16", bias="float32"), GPU, []),
        (attention(LONG, "bfloat16", dropout=0.5, seed=1), GPU, []),
        (attention(LONG, "bfloat16"), Target("gpu", flash=False), []),
        (attention((1, 2047, 2, 64), "bfloat16"), GPU, []),
        (attention((1, 2048, 2, 60), "bfloat16"), GPU, []),
        (attention((1, 2048, 2, 256), "bfloat16"), GPU, []),
        (attention(LONG, "bfloat16"), CPU, ROWS),
    ],
)
def test_steps(program: Program, target: Target, wanted: list[tuple[str, Any]]) -> None:
    assert found(program, target) == wanted


def test_without_a_gradient_cudnn_stores_nothing_for_one() -> None:
    shape = (2, 3, *LONG[1:])
    with gc.Graph() as graph:
        xs = gc.placeholder(shape, "bfloat16", name="xs")
        y = gc.map_fn(lambda x: gc.nn.attention(x, x, x), xs)
        z = gc.nn.attention(xs[0], xs[1], xs[1])
        slope = gc.gradients(gc.reduce_sum(z), xs)

    def alone(fetches: list[Any]) -> list[bool]:
        program = prepare(graph, fetches, [xs], CompileOptions()).program
        nodes = StepAttention(GPU).run(program).program.walk()
        return [n.attrs["alone"] for n in nodes if n.op.name == "Attention" and n.attrs["flash"]]

    assert alone([y, z]) == [True, True]
    assert alone([y, z, slope]) == [False, False]  # XLA merges equal calls


@pytest.mark.slow
def test_on_replicas_and_in_loops_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose blocks are rolled, on one device and two, with one step per call and three.

    Here short attentions count as long.
    """
    for name, value in {"_SHORTEST": 32, "_FEWEST_WEIGHTS": {"cpu": 1 << 16}, "_ROWS": 16}.items():
        monkeypatch.setattr(attention_steps, name, value)
    time, shape = 64, (4, 64, 16)
    rng = np.random.default_rng(0)
    feeds = rng.standard_normal((3, *shape))
    kernels = rng.standard_normal((3, 16, 16)) / 4

    def losses(strategy: DataParallel | None, together: bool, **options: Any) -> np.ndarray:
        with gc.Graph() as graph:
            x = gc.placeholder(shape, "float64", name="x", batch_axis=0)
            variables = [gc.variable(w, name=f"w{i}") for i, w in enumerate(kernels)]
            h = x
            for w in variables:
                q = gc.transpose(gc.reshape(h @ w, (4, time, 8, 2)), (0, 2, 1, 3))
                y = gc.transpose(plain(q, gc.tanh(q), q), (0, 2, 1, 3))
                h = h + gc.reshape(y, shape)
            loss = gc.reduce_mean(h * h)
            slopes = gc.gradients(loss, variables)
            pairs = zip(variables, slopes, strict=True)
            train = gc.group(*[w.assign_sub(0.1 * g) for w, g in pairs])
        session = gc.Session(
            graph, strategy=strategy, options=CompileOptions(cache=None, max_in_flight=1, **options)
        )
        if together:
            return np.asarray(session.run_steps([train, loss], {x: feeds}, n=3)[1])
        return np.asarray([session.run([train, loss], {x: each})[1] for each in feeds])

    wanted = losses(None, False, pipeline="O0")
    for strategy, together in ((None, False), (None, True), (DataParallel(2), False)):
        assert_near(losses(strategy, together), wanted, rtol=1e-10)


def plain(q: Any, k: Any, v: Any) -> Any:
    return gc.matmul(gc.nn.softmax(gc.matmul(q, k, transpose_b=True)), v)
