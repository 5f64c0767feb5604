"""Join moments: one exchange for the mean and the variance of a batch; the values do not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices.join_moments import JoinMoments
from tests.near import assert_near
from tests.passes.check import check, check_stays

BEFORE = """
program p(x: bf16[4, 3]) {
  %0 = Cast(x) {dtype=f32} : f32[4, 3]
  %1 = ReduceMean(%0) {axes=[0], keepdims=true, count=8} : f32[1, 3]
  %2 = AllReduce(%1) {op="sum"} : f32[1, 3]
  %3 = Cast(x) {dtype=f32} : f32[4, 3]
  %4 = Variance(%3, %2) {axes=[0], count=8} : f32[1, 3]
  %5 = Negative(%2) : f32[1, 3]
  %6 = AllReduce(%4) {op="sum"} : f32[1, 3]
  return negative = %5, variance = %6
}
"""


def test_replicas_gather_the_moments_of_their_parts() -> None:
    check(
        JoinMoments(2),
        BEFORE,
        """
        program p(x: bf16[4, 3]) {
          %0 = Cast(x) {dtype=f32} : f32[4, 3]
          %3 = Cast(x) {dtype=f32} : f32[4, 3]
          %own = ReduceMean(%0) {axes=[0], keepdims=true, count=4} : f32[1, 3]
          %within = Variance(%3, %own) {axes=[0], count=8} : f32[1, 3]
          %both = Stack(%own, %within) {axis=0} : f32[2, 1, 3]
          %row = Reshape(%both) {shape=[1, 2, 1, 3]} : f32[1, 2, 1, 3]
          %all = AllGather(%row) {axis=0, replicas=2} : f32[2, 2, 1, 3]
          %means, %parts = Split(%all) {axis=1, sizes=[1, 1]} : f32[2, 1, 1, 3], f32[2, 1, 1, 3]
          %center = ReduceMean(%means) {axes=[0, 1], keepdims=true} : f32[1, 1, 1, 3]
          %mean = Reshape(%center) {shape=[1, 3]} : f32[1, 3]
          %5 = Negative(%mean) : f32[1, 3]
          %between = Variance(%means, %center) {axes=[0, 1], count=2} : f32[1, 1, 1, 3]
          %total = ReduceSum(%parts) {axes=[0, 1], keepdims=true} : f32[1, 1, 1, 3]
          %sum = Add(%total, %between) : f32[1, 1, 1, 3]
          %variance = Reshape(%sum) {shape=[1, 3]} : f32[1, 3]
          return negative = %5, variance = %variance
        }
        """,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count=8", "count=7"),  # an uneven batch
        ("%4 = Variance(%3, %2)", "%4 = Variance(%3, %1)"),  # another mean
        ("%3 = Cast(x)", "%y = Exp(x) : bf16[4, 3]\n  %3 = Cast(%y)"),
        ('{op="sum"} : f32[1, 3]\n  return', '{op="max"} : f32[1, 3]\n  return'),
    ],
)
def test_others_stay(old: str, new: str) -> None:
    check_stays(JoinMoments(2), BEFORE.replace(old, new))


def step_of(rows: int, replicas: int | None, **options: Any) -> gc.Executable:
    """Two training steps of a normalized layer, on numbers with large means."""
    g = gc.Graph(seed=0)
    with g:
        x = gc.placeholder((None, 6), name="x")
        h = x
        for i in range(3):
            h = gc.nn.Dense(6, name=f"dense{i}")(h)
            h = gc.nn.BatchNorm(name=f"norm{i}")(h, training=True)
        loss = gc.reduce_mean(gc.square(h - x))
        train = gc.minimize(loss, optax.sgd(0.1), name="train")
    strategy = None if replicas is None else gc.devices.DataParallel(replicas)
    return gc.compile(
        g, [train, loss, h], {x: (rows, 6)}, strategy=strategy, options=gc.CompileOptions(**options)
    )


def values(step: gc.Executable, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    batch = (100 + rng.standard_normal((rows, 6))).astype(np.float32)
    state = step.init()
    for _ in range(3):
        (_, loss, h), state = step(state, {"x": batch})
    return {"loss": np.asarray(loss), "h": np.asarray(h), **state}


@pytest.mark.parametrize("rows", [32, 30])  # 30 rows are sharded unevenly
def test_the_moments_are_those_of_the_whole_batch(rows: int) -> None:
    wanted = values(step_of(rows, None, cache=None), rows)
    step = step_of(rows, 4, cache=None)
    gathers = [n for n in step.stages.local.walk() if n.op.name == "AllGather"]
    joined = [n for n in gathers if not n.name.startswith("norm2/BatchNorm/")]  # the value h
    assert len(joined) == (3 if rows == 32 else 0)
    got = values(step, rows)
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert_near(got[name], value, rtol=2e-4, atol=1e-5, err_msg=name)
