"""Executables that were compiled for a machine elsewhere: as the machine itself would find them.

No GPU is here, so what `Making` sees as the devices of this process are those of the machine, and
XLA's loader only records what it is given.
"""

from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.devices.topology import devices_of
from graphc.errors import AttributeValueError, CacheError, DeviceError, MissingExtraError
from graphc.runtime import loading, making, stored
from graphc.runtime.counters import COUNTERS
from tests.gpu_compile.models import mlp

SHAPES = {"x": (128, 784), "y": (128,)}


class OnMachine:
    """A process on the machine, as far as `gc.compile` looks."""

    def __init__(self, machine: str, patch: pytest.MonkeyPatch) -> None:
        self.machine = gc.devices.Machine(machine)
        self.devices = devices_of(self.machine)
        self.loaded: list[Any] = []
        patch.setattr(stored, "from_bytes", self._load)

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
            patch.setattr(making, "available", lambda: names)
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
    np.testing.assert_allclose(got, session.run("out/Add", {"x": batch}), rtol=1e-5)
    assert predict.way != "native"
    assert any("made for another environment" in note for note in predict.notes)


def test_native_code_is_asked_for_with_the_machine(tmp_path) -> None:
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
    text = gc.devices.Machine("h100").to_toml() + "target_config = 'nonsense {'\n"
    path = tmp_path / "m.toml"
    path.write_text(text)
    g, fetches = mlp()
    with pytest.raises(DeviceError, match=f"JAX {jax.__version__} cannot describe"):
        gc.compile(g, fetches, SHAPES, machine=gc.devices.Machine(path))
