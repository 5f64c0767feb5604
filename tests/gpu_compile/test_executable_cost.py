"""The cost of compiled steps: `cost()` and `hlo_cost()` of executables for absent GPUs."""

import optax
import pytest

import graphc as gc
from tests.gpu_compile.models import mlp

DataParallel = gc.devices.DataParallel
BATCH, UNITS = 128, 512
SHAPES = {"x": (BATCH, 784), "y": (BATCH,)}
# Forward and weight gradient in each layer; input gradient in all layers except the first.
PRODUCTS = 2 * BATCH * (2 * 784 * UNITS + 3 * UNITS * UNITS + 3 * UNITS * 10)
PARAMETERS = 784 * UNITS + UNITS + UNITS * UNITS + UNITS + UNITS * 10 + 10


def test_a_step_with_adam() -> None:
    g, fetches = mlp(units=UNITS)
    step = gc.compile(g, fetches, SHAPES, machine="h100")
    found = step.hlo_cost()
    assert found.matrix_flops == {"tf32": PRODUCTS}
    assert found.collectives == {} and found.host_transfers == 0 and found.notes == ()
    assert step.cost() == {
        "total flops": found.flops,
        "total bytes accessed": found.bytes_accessed,
        "total kernels": found.kernels,
    }


def test_data_parallelism_sends_the_gradients_once() -> None:
    g, fetches = mlp(units=UNITS)
    step = gc.compile(g, fetches, SHAPES, machine="8xh100", strategy=DataParallel(8))
    found = step.hlo_cost()
    assert found.matrix_flops == {"tf32": PRODUCTS / 8}
    # The loss is reduced with the gradients.
    assert found.collectives == {"all-reduce": (1, 4 * (PARAMETERS + 1))}


def test_several_steps_in_one_call_cost_as_many() -> None:
    g, fetches = mlp(units=UNITS)
    step = gc.compile(g, fetches, SHAPES, machine="h100", steps=4)
    assert step.hlo_cost().matrix_flops == {"tf32": 4 * PRODUCTS}


@pytest.mark.parametrize("steps", [None, 3])
def test_a_program_in_parts_costs_what_they_cost_together(steps: int | None) -> None:
    g = gc.Graph(seed=0)
    with g:
        x = h = gc.placeholder((64, 256), name="x")
        for i in range(4):
            with gc.device(f"/gpu:{i}"):
                h = gc.nn.Dense(256, activation=gc.nn.relu, name=f"layer{i}")(h)
        train = gc.minimize(gc.reduce_mean(h * h), optax.sgd(0.1), name="train")
    step = gc.compile(g, train, {x: (64, 256)}, machine="4xh100", steps=steps)
    found = step.hlo_cost()
    products = 2 * 64 * 256 * 256 * (2 + 3 + 3 + 3)
    assert found.matrix_flops == {"tf32": (steps or 1) * products}
    assert step.cost()["total flops"] == found.flops


def test_xla_gives_the_figures_of_a_processor() -> None:
    g, fetches = mlp(units=UNITS)
    step = gc.compile(g, fetches, SHAPES)
    assert "total kernels" not in step.cost()
    assert step.cost()["flops"] == pytest.approx(step.hlo_cost().flops, rel=0.1)
