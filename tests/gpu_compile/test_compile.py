"""Steps compiled for machines that are not present: all strategies, reports, and errors."""

import re
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from benchmarks import transformer
from graphc.devices.machine import model_names
from graphc.devices.topology import devices_of
from graphc.errors import AttributeValueError, DeviceError, MemoryLimitError
from graphc.store.folder import ExecutableCache, default_folder
from tests.gpu_compile.models import bytes_of_state, mlp

DataParallel, Machine, Mesh = gc.devices.DataParallel, gc.devices.Machine, gc.devices.Mesh
SHAPES = {"x": (128, 784), "y": (128,)}
BATCH = {"x": np.zeros((128, 784), np.float32), "y": np.zeros(128, np.int32)}


def collectives(step: gc.Executable) -> Counter[str]:
    """The number of collectives of each kind in the HLO; asynchronous ones count once."""
    kinds = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
    return Counter(re.findall(rf" ({kinds})(?:-start)?\(", step.hlo()))


@pytest.mark.parametrize("name", model_names())
def test_each_model_can_be_compiled_for(name: str) -> None:
    g, fetches = mlp()
    step = gc.compile(g, fetches, SHAPES, machine=name)
    assert step.devices[0].device_kind == Machine(name).model.name
    assert "__cublas$" in step.hlo()


@pytest.mark.parametrize("count", [1, 4, 8])
def test_data_parallelism_joins_all_gradients_once(count: int) -> None:
    g, fetches = mlp()
    strategy = DataParallel(count) if count > 1 else None
    step = gc.compile(g, fetches, SHAPES, machine=Machine("h100", count), strategy=strategy)
    assert len(step.devices) == count
    assert collectives(step) == ({"all-reduce": 1} if count > 1 else {})


def test_a_mesh() -> None:
    g, fetches = mlp()
    kernel = g.variables["hidden0/kernel"]
    with g.extend():
        gc.shard(kernel, (None, "model"))
    step = gc.compile(g, fetches, SHAPES, machine="8xh100", strategy=Mesh({"data": 2, "model": 4}))
    assert len(step.devices) == 8 and collectives(step)["all-reduce"] > 0


def test_optimizer_state_in_pieces_is_a_quarter_on_each_of_four() -> None:
    g, fetches = mlp()
    whole, cut = (
        gc.compile(
            g, fetches, SHAPES, machine="4xh100", strategy=DataParallel(4, shard_optimizer=cut)
        )
        for cut in (False, True)
    )
    state = bytes_of_state(g)
    saved = whole.memory()["aliased"] - cut.memory()["aliased"]
    assert saved == pytest.approx(state * 2 / 3 * 3 / 4, rel=0.02)  # two slots for each parameter
    assert collectives(cut)["reduce-scatter"] > 0


def test_several_steps_in_one_call() -> None:
    g, fetches = mlp()
    step = gc.compile(g, fetches, SHAPES, machine="h100", steps=4)
    assert " while(" in step.hlo()
    assert step.interface.feeds[0].type.shape == (4, 128, 784)


@pytest.mark.parametrize("steps", [None, 3])
def test_a_program_in_parts(steps: int | None) -> None:
    g = gc.Graph(seed=0)
    with g:
        x = h = gc.placeholder((64, 256), name="x")
        for i in range(4):
            with gc.device(f"/gpu:{i}"):
                h = gc.nn.Dense(256, activation=gc.nn.relu, name=f"layer{i}")(h)
        train = gc.minimize(gc.reduce_mean(h * h), optax.sgd(0.1), name="train")
    step = gc.compile(g, train, {x: (64, 256)}, machine="4xh100", steps=steps)
    assert len(step.devices) == 4 and len(step.partition.clusters) >= 4
    fewer = gc.compile(g, train, {x: (64, 256)}, machine="2xh100")
    assert any("no device /device:GPU:3" in note for note in fewer.notes)
    with pytest.raises(DeviceError, match=r"'/device:GPU:2'.*2 available"):
        gc.compile(g, train, {x: (64, 256)}, machine="2xh100", soft_placement=False)


@pytest.mark.parametrize("strategy", [None, DataParallel(8), Mesh({"data": 8})])
def test_each_buffer_of_state_is_written_over(strategy) -> None:
    g, fetches = mlp()
    step = gc.compile(g, fetches, SHAPES, machine="8xh100", strategy=strategy)
    state = bytes_of_state(g)
    assert step.memory()["aliased"] == pytest.approx(state, rel=1e-3)
    assert step.memory()["aliased"] >= state


def test_inference() -> None:
    g, _ = mlp()
    step = gc.compile(g, "out/Add", {"x": (32, 784)}, machine="l4")
    assert step.memory()["aliased"] == 0 and not collectives(step)
    assert "pass " in str(step.pass_report()) and "stablehlo." in step.stablehlo()


def test_what_is_not_here_does_not_run() -> None:
    g, fetches = mlp()
    step = gc.compile(g, fetches, SHAPES, machine="h100")
    here = gc.compile(g, fetches, SHAPES)
    state = here.init()
    for attempt in (step.init, lambda: step(state, BATCH), lambda: step.put(BATCH)):
        with pytest.raises(DeviceError, match="compiled for 1 x NVIDIA H100 80GB HBM3"):
            attempt()
    (_, loss), _ = here(state, BATCH)  # the state is unchanged
    assert float(loss) == pytest.approx(np.log(10), rel=1e-5)


def test_the_memory_of_the_machine_is_the_limit() -> None:
    g, fetches = mlp()
    large = {"x": (10**7, 784), "y": (10**7,)}
    with pytest.raises(MemoryLimitError, match=r"bytes of an NVIDIA H100.*75% of its 84.9 GB"):
        gc.compile(g, fetches, large, machine="h100").memory()
    shared = gc.compile(g, fetches, large, machine="8xh100", strategy=DataParallel(8))
    assert shared.memory()["temporaries"] > 5 << 30
    small = gc.CompileOptions(memory_limit="1MB")
    with pytest.raises(MemoryLimitError, match="memory_limit=1000000 bytes"):
        gc.compile(g, fetches, SHAPES, machine="h100", options=small).memory()


def test_gpus_that_cuda_here_does_not_know() -> None:
    model = replace(Machine("l4").model, compute_capability="3.5")
    g, fetches = mlp()
    with pytest.raises(DeviceError, match=r"does not support compute capability 3\.5 of NVIDIA L4"):
        gc.compile(g, fetches, SHAPES, machine=Machine.of(model)).memory()


def test_the_log_of_placements_has_the_devices_of_the_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    g, fetches = mlp()
    gc.compile(g, fetches, SHAPES, machine="2xh100", log_placement=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Devices:" and "CPU" not in "".join(lines)
    assert [line for line in lines if "NVIDIA H100" in line] == lines[1:3]
    assert any(line.startswith("hidden0/kernel: (Variable)") and "GPU:0" in line for line in lines)


def test_a_little_memory_is_kept_to_by_computing_again() -> None:
    def long(machine: Machine) -> gc.Executable:
        g = gc.Graph(seed=0)
        with g:
            x = gc.placeholder((4096, 256), name="x")

            def layer(h: gc.Tensor, kernel: gc.Tensor) -> tuple[gc.Tensor, None]:
                return gc.tanh(gc.matmul(gc.tanh(gc.matmul(h, kernel)), kernel)), None

            kernels = gc.variable(gc.nn.initializers.Normal(0.1), shape=(24, 256, 256), name="k")
            last, _ = gc.scan(layer, x, kernels)
            train = gc.minimize(gc.reduce_mean(last * last), optax.sgd(0.1), name="train")
        return gc.compile(g, train, {x: (4096, 256)}, machine=machine)

    def taken(step: gc.Executable) -> int:
        memory = step.memory()
        return memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]

    plain = taken(long(Machine("h100")))
    fraction = 0.7 * plain / Machine("h100").model.memory
    assert taken(long(Machine("h100", memory_fraction=fraction))) <= 0.7 * plain


@pytest.mark.parametrize(("blocks", "rolled"), [(20, False), (40, True)])
def test_only_deep_networks_become_loops(blocks: int, rolled: bool) -> None:
    g, fetches = mlp(blocks, units=256)
    step = gc.compile(g, fetches, SHAPES, machine="h100")
    assert (" while(" in step.hlo()) == rolled
    if not rolled:  # each product once: forward, and both gradients, except of the input
        products = sum(n for t, n in step.hlo_cost().custom_calls.items() if "matmul" in t)
        assert products == 3 * (blocks + 1) - 1


def test_loops_are_made_where_memory_is_short() -> None:
    """Few blocks become a loop too, because values that loops store can be recomputed."""
    size = transformer.Size(blocks=6, width=256, heads=4, sequence=256, batch=32)
    model = transformer.graphc_model(size)

    def compiled(limit: int | None) -> tuple[int, bool]:
        step = gc.compile(
            model.graph,
            [model.train, model.loss],
            {"text": (size.batch, size.sequence + 1)},
            machine="h100",
            options=gc.CompileOptions(precision="bf16", memory_limit=limit),
        )
        memory = step.memory()
        taken = memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]
        return taken, " while(" in step.hlo()

    plain, rolled = compiled(None)
    assert not rolled
    limit = int(0.75 * plain)
    taken, rolled = compiled(limit)
    assert rolled and taken <= limit


def test_wrong_devices_are_refused() -> None:
    g, fetches = mlp()
    for strategy, says in (
        (DataParallel(4), "4 devices requested, 2 available"),
        (DataParallel(["/gpu:5"]), "no device '/gpu:5', 2 available"),
        (DataParallel(["/cpu:0"]), "no device '/cpu:0', 2 available"),
        (DataParallel(jax.devices()), "is a device of this process"),
        (Mesh({"data": 4}), "4 devices requested, 2 available"),
    ):
        with pytest.raises(DeviceError, match=says):
            gc.compile(g, fetches, SHAPES, machine="2xh100", strategy=strategy)
    with pytest.raises(AttributeValueError, match=r"must be a gc\.devices.Machine, got int"):
        gc.compile(g, fetches, SHAPES, machine=8)


def test_without_a_folder_nothing_is_kept() -> None:
    g, fetches = mlp()
    gc.compile(g, fetches, SHAPES, machine="h100").wait()
    kept = ExecutableCache(default_folder(), 1 << 30).entries()
    assert not [entry for entry in kept if "interface" in entry.metadata]  # recipes are no programs


def test_the_devices_are_those_of_one_host() -> None:
    devices = devices_of(Machine("8xh100"))
    assert [d.id for d in devices] == list(range(8))
    assert {d.process_index for d in devices} == {0}
