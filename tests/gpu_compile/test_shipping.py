"""Executables compiled for a machine elsewhere: that machine finds them as its own.

No GPU is present, so `Compilation` sees the machine's devices as devices of this process, and XLA's
loader only records its input.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices.topology import devices_of, target_config
from graphc.errors import (
    ArtifactError,
    AttributeValueError,
    CacheError,
    DeviceError,
    MissingExtraError,
)
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.pipeline import compilation, executable_cache
from graphc.runtime.targets import loading
from tests.gpu_compile.models import mlp
from tests.near import assert_near

SHAPES = {"x": (128, 784), "y": (128,)}


class OnMachine:
    """A process on the machine, as `gc.compile` sees it."""

    def __init__(self, machine: str, patch: pytest.MonkeyPatch) -> None:
        self.machine = gc.devices.Machine(machine)
        self.devices = devices_of(self.machine)
        self.loaded: list[Any] = []
        patch.setattr(executable_cache, "from_bytes", self._load)

    def _load(self, code: loading.Code, arguments: int, results: int, devices: Any) -> Any:
        loading.make_ready(code.targets, "cuda")
        assert tuple(devices) == self.devices[: len(devices)] and len(code.payload) > 1000
        self.loaded.append(code)
        return lambda *values: None

    def compile(self, folder: Any, options: Any = None) -> gc.Executable:
        g, fetches = mlp()
        count = self.machine.count
        strategy = gc.devices.DataParallel(list(self.devices)) if count > 1 else None
        options = gc.CompileOptions(cache=folder, **(options or {}))
        with pytest.MonkeyPatch.context() as patch:
            names = dict(zip(self.machine.device_names, self.devices, strict=True))
            patch.setattr(compilation, "available", lambda: names)
            patch.setattr("graphc.devices.placer.available", lambda: names)
            return gc.compile(g, fetches, SHAPES, strategy=strategy, options=options)


def ship(machine: str, folder: Any, **options: Any) -> gc.Executable:
    g, fetches = mlp()
    count = gc.devices.Machine(machine).count
    strategy = gc.devices.DataParallel(count) if count > 1 else None
    options = gc.CompileOptions(cache=folder, **options)
    return gc.compile(g, fetches, SHAPES, machine=machine, strategy=strategy, options=options)


@pytest.mark.parametrize("machine", ["h100", "8xh100"])
def test_the_machine_finds_what_was_shipped(machine: str, tmp_path, monkeypatch) -> None:
    there = ship(machine, tmp_path)
    there.wait()
    on_machine = OnMachine(machine, monkeypatch)
    before = COUNTERS.snapshot()
    here = on_machine.compile(tmp_path)
    assert here.cached and here.cache_key == there.cache_key
    here.wait()
    assert COUNTERS.snapshot().compiles == before.compiles
    assert COUNTERS.snapshot().traces == before.traces
    assert len(on_machine.loaded) == 1 and "__cublas$lt$matmul" in on_machine.loaded[0].targets
    assert any("XLA has not timed kernels" in note for note in here.notes)


def test_other_gpus_and_counts_compile_again_and_say_why(tmp_path, monkeypatch) -> None:
    ship("8xh100", tmp_path).wait()
    for machine, says in (("8xa100-80gb", "NVIDIA A100-SXM4-80GB"), ("4xh100", "gpu of 4")):
        on_machine = OnMachine(machine, monkeypatch)
        step = on_machine.compile(tmp_path)
        assert not step.cached and not on_machine.loaded
        (note,) = [note for note in step.notes if "for another machine" in note]
        assert says in note


@pytest.mark.parametrize("library", ["cuda", "cudnn"])
def test_other_libraries_compile_again_and_say_so(library: str, tmp_path, monkeypatch) -> None:
    ship("h100", tmp_path).wait()
    from graphc.devices import environment, libraries

    there = {**libraries.libraries(), library: "99.1"}
    monkeypatch.setattr(environment, "libraries", lambda: there)
    step = OnMachine("h100", monkeypatch).compile(tmp_path)
    assert not step.cached
    assert any(f"{library} 99.1" in note for note in step.notes)


def test_another_program_says_nothing_of_it(tmp_path, monkeypatch) -> None:
    ship("h100", tmp_path).wait()
    step = OnMachine("h100", monkeypatch).compile(tmp_path, {"pipeline": "O1"})
    assert not step.cached and step.notes == []


def test_code_that_calls_unknown_functions_is_not_loaded(tmp_path, monkeypatch) -> None:
    ship("h100", tmp_path).wait()

    def unknown(*_: Any) -> None:
        raise CacheError("a stored program calls 'x', which is not known here")

    on_machine = OnMachine("h100", monkeypatch)
    monkeypatch.setattr(loading, "make_ready", unknown)
    assert not on_machine.compile(tmp_path).cached


def test_an_artifact_with_native_code_for_a_machine(tmp_path) -> None:
    g, _ = mlp()
    session = gc.Session(g)
    x = g.tensor("x")
    sizes = {str(x.type.shape[0]): 4}
    signature = gc.Signature({"x": x}, {"logits": g.tensor("out/Add")}, sizes=sizes)
    path = tmp_path / "model.gcx"
    gc.save(session, path, signatures={"predict": signature}, native=True, machine="h100")
    model = gc.load(path, trust_native=True)
    batch = np.ones((4, 784), np.float32)
    predict = model.signatures["predict"]
    got = predict(x=batch)["logits"]
    assert_near(got, session.run("out/Add", {"x": batch}), rtol=1e-5)
    assert predict.way != "native"
    assert any("made for another environment" in note for note in predict.notes)


def test_the_memory_of_the_machine_is_the_limit_of_native_code(tmp_path) -> None:
    """`gc.compile` has the same limit."""
    g, _ = mlp()
    x = g.tensor("x")
    sizes = {str(x.type.shape[0]): 10**8}
    signature = gc.Signature({"x": x}, {"logits": g.tensor("out/Add")}, sizes=sizes)
    with pytest.raises(ArtifactError, match=r"does not fit into .* bytes of an NVIDIA L4") as found:
        gc.save(
            gc.Session(g), tmp_path / "m", signatures={"p": signature}, native=True, machine="l4"
        )
    assert found.value.hint == "fix smaller sizes, or give a machine with more memory"


def test_native_code_is_requested_with_the_machine(tmp_path) -> None:
    g, _ = mlp()
    signature = gc.Signature({"x": g.tensor("x")}, {"logits": g.tensor("out/Add")})
    with pytest.raises(AttributeValueError, match="native is False"):
        gc.save(gc.Session(g), tmp_path / "m", signatures={"p": signature}, machine="h100")


def test_without_the_plugin_the_extra_is_named(monkeypatch) -> None:
    from graphc.devices import topology

    topology._devices.cache_clear()
    monkeypatch.setattr(topology, "installed", lambda packages: None)
    g, fetches = mlp()
    with pytest.raises(MissingExtraError, match=r"graphc\[cuda\]"):
        gc.compile(g, fetches, SHAPES, machine="h100")


def test_a_description_that_xla_does_not_take_is_refused(tmp_path) -> None:
    machine = gc.devices.Machine("h100")
    text = f"{machine.to_toml()}target_config = '{target_config(machine.model)} {{'\n"
    path = tmp_path / "m.toml"
    path.write_text(text)
    g, fetches = mlp()
    with pytest.raises(DeviceError, match=f"JAX {jax.__version__} cannot describe"):
        gc.compile(g, fetches, SHAPES, machine=gc.devices.Machine(path))


def test_what_was_timed_on_the_gpus_stays_in_the_folder(tmp_path, monkeypatch) -> None:
    shipped = ship("h100", tmp_path)
    shipped.wait()
    cache = executable_cache.ExecutableCache(tmp_path, 1 << 30)
    entry = cache.get(shipped.cache_key)
    cache.put(shipped.cache_key, {**entry.metadata, "shipped": None}, entry.payload)
    monkeypatch.setattr(executable_cache, "warn_once", (told := []).append)
    ship("h100", tmp_path).wait()
    assert cache.get(shipped.cache_key).metadata["shipped"] is None
    assert "with timed kernels" in told[0]


def test_what_recomputes_for_a_small_machine_is_not_shipped(tmp_path, monkeypatch) -> None:
    def compiled(fraction: float) -> gc.Executable:
        with gc.Graph(seed=0) as g:
            x = gc.placeholder((4096, 256), name="x")
            kernels = gc.variable(gc.nn.initializers.Normal(0.1), shape=(24, 256, 256), name="k")

            def layer(h: gc.Tensor, k: gc.Tensor) -> tuple[gc.Tensor, None]:
                return gc.tanh(gc.matmul(gc.tanh(gc.matmul(h, k)), k)), None

            last, _ = gc.scan(layer, x, kernels)
            train = gc.minimize(gc.reduce_mean(last * last), optax.sgd(0.1), name="train")
        machine = gc.devices.Machine("h100", memory_fraction=fraction)
        options = gc.CompileOptions(cache=tmp_path)
        return gc.compile(g, train, {x: (4096, 256)}, machine=machine, options=options).wait()

    whole = compiled(0.75).memory()
    monkeypatch.setattr(executable_cache, "warn_once", (told := []).append)
    taken = whole["arguments"] + whole["temporaries"]
    small = compiled(0.7 * taken / gc.devices.Machine("h100").model.memory)
    assert small.memory()["temporaries"] < whole["temporaries"]
    assert "recomputes values to fit" in told[0]


def test_calls_of_python_are_refused() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((8,), name="x")
        y = gc.py_callback(np.negative, jax.ShapeDtypeStruct((8,), np.float32), x)
    with pytest.raises(DeviceError, match="calls back into Python"):
        gc.compile(g, y, {x: (8,)}, machine="h100")


def test_threads_leave_the_settings_of_jax_as_they_were() -> None:
    before = jax.config.values["jax_platforms"]
    with ThreadPoolExecutor(8) as pool:
        machines = [gc.devices.Machine("h100", count) for count in range(20, 36)]
        assert [len(found) for found in pool.map(devices_of, machines)] == list(range(20, 36))
    assert jax.config.values["jax_platforms"] == before
