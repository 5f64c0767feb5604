"""Hand-written towers, a strategy and one device compute the same step."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import towers

import graphc as gc
from graphc.devices import DataParallel
from tests.near import assert_near

QUICK = gc.CompileOptions(xla_options={"xla_backend_optimization_level": 0})
KERNEL = "tower_0/network/out/kernel"


def after_steps(count: int, strategy: DataParallel | None = None) -> dict[str, np.ndarray]:
    """Every variable after three steps with the given number of towers."""
    job = towers.build(towers=count, dtype="float64", batch=16)
    session = gc.Session(job.graph, strategy=strategy, options=QUICK)
    for feeds in islice(job.batches, 3):
        session.run(job.train, feeds)
    return session.values()


def test_towers_are_data_parallelism_is_one_device() -> None:
    one = after_steps(1)
    by_hand, by_strategy = after_steps(4), after_steps(1, DataParallel(4))
    assert one.keys() == by_hand.keys() == by_strategy.keys()
    assert not np.allclose(one[KERNEL], one[f"{KERNEL}/average"])
    for name, value in one.items():
        for other in (by_hand, by_strategy):
            assert_near(other[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


def test_variables_are_shared_and_towers_ask_for_devices() -> None:
    graph = towers.build(towers=3).graph
    kernels = [v for v in graph.variables.values() if v.name.endswith("kernel")]
    names = ["conv", "hidden", "out"]  # created in the first tower
    assert [v.name for v in kernels] == [f"tower_0/network/{name}/kernel" for name in names]
    assert {v.device for v in kernels} == {"/device:CPU:0"}
    losses = graph.collection("losses", scope="tower_2")
    assert [t.name for t in losses] == ["tower_2/cross_entropy:0", "tower_2/penalty:0"]
    assert {graph.producer(t).device for t in losses} == {"/device:CPU:2"}


@pytest.mark.slow
def test_it_learns() -> None:
    job = towers.build(towers=2)
    session = gc.Session(job.graph)
    gc.train.fit(session, job, steps=60)
    found = job.evaluate(session)
    assert found["test accuracy"] > 0.9 and found["test accuracy of the averages"] > 0.9
