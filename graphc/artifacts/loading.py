"""`gc.load`: runs an artifact. No code of the model is needed, and none in the file is run
but StableHLO."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from graphc.artifacts import container
from graphc.errors import (
    ArtifactCorruptError,
    ArtifactVersionError,
    FeedError,
    GraphcError,
    StateError,
    UnknownNameError,
    nearest,
)
from graphc.ir.dims import parse_dim
from graphc.ir.dtypes import as_dtype
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.runtime.executors import place_on
from graphc.runtime.feeds import FeedSpec, bind_feeds
from graphc.runtime.state import State, StateLayout


class Model(Mapping[str, "EntryPoint"]):
    """A loaded artifact: its entry points by name, and the weights it was saved with.

    Attributes:
        signatures: the entry points by name (the model itself is this mapping too).
        manifest: what the file says of itself.
    """

    def __init__(self, manifest: Mapping[str, Any], weights: Mapping[str, np.ndarray[Any, Any]], programs: Mapping[str, bytes], device: jax.Device) -> None:
        self.manifest = manifest
        self._device = device
        types = {n: TensorType(a.dtype, a.shape) for n, a in weights.items()}
        self._layout = StateLayout(types)
        self._weights = dict(weights)
        self._state: State | None = None
        self.signatures: dict[str, EntryPoint] = {
            name: EntryPoint(name, entry, programs[entry["program"]], self)
            for name, entry in manifest["signatures"].items()
        }

    def state(self) -> State:
        """A fresh state with the saved values: what a training entry point starts from."""
        values = [place_on(v, self._device) for v in self._weights.values()]
        return State(self._layout, values)

    def saved_state(self) -> State:
        """The saved values, placed once: what an entry point that only reads uses."""
        if self._state is None:
            self._state = self.state()
        return self._state

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms it was lowered for."""
        return tuple(self.manifest["platforms"])

    def __getitem__(self, name: str) -> EntryPoint:
        found = self.signatures.get(name)
        if found is None:
            raise UnknownNameError(
                f"no signature {name!r} in the artifact", mend=nearest(name, self.signatures)
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.signatures)

    def __len__(self) -> int:
        return len(self.signatures)

    def __repr__(self) -> str:
        return f"<Model {self.manifest.get('graph')}: {', '.join(self.signatures)}>"


class EntryPoint:
    """One signature of a loaded artifact.

    An entry point that assigns no variable is `f(x=...) -> {name: array}` (a state may be given
    first). One that does is `f(state, x=...) -> ({name: array}, new state)`, and consumes the
    state it is given.
    """

    def __init__(self, name: str, entry: Mapping[str, Any], data: bytes, model: Model) -> None:
        self.name = name
        self._entry = entry
        self._data = data
        self._model = model
        self._call: Any = None
        ports = [_port(row) for row in entry["inputs"]]
        self._specs = [FeedSpec(port, None, copy=True) for port in ports]
        # A program of ports alone: what the rules for feeds need to know.
        self._ports = Program(name, tuple(ports), (), ())
        layout = model._layout
        self._written = [layout.slot(n).buffer for n in entry["written"]]
        self._read = [layout.slot(n).buffer for n in entry["read"]]
        self._assigned = [layout.slot(n).buffer for n in entry["assigned"]]

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Argument name -> type, named sizes open."""
        return {spec.label: spec.type for spec in self._specs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Result name -> type."""
        return {row["name"]: _port(row).tensor.type for row in self._entry["outputs"]}

    @property
    def updates_state(self) -> bool:
        """Whether it assigns variables, and so takes and gives a state."""
        return bool(self._assigned)

    def __call__(self, state: State | None = None, /, **inputs: Any) -> Any:
        """Runs it once.

        Raises:
            FeedError: a wrong, missing or superfluous input.
            StateError: a training entry point without a state, or with a consumed one.
        """
        if state is None:
            if self.updates_state:
                raise StateError(
                    f"{self.name!r} updates variables: it takes a state first",
                    mend="state = model.state(); outputs, state = "
                    f"model.signatures[{self.name!r}](state, ...)",
                )
            state = self._model.saved_state()
        values = self._feeds(inputs)
        buffers = list(state.buffers)
        with jax.enable_x64(self._entry["wide"]):
            results = self._function()(
                *(buffers[i] for i in self._written), *(buffers[i] for i in self._read), *values
            )
        count = len(self._assigned)
        fetched = results[count:]
        outputs = {row["name"]: fetched[row["index"]] for row in self._entry["outputs"]}
        if not self.updates_state:
            return outputs
        for i, buffer in zip(self._assigned, results[:count], strict=True):
            buffers[i] = buffer
        state.consume(f"the entry point {self.name!r}")
        return outputs, State(state.layout, buffers)

    def _feeds(self, inputs: Mapping[str, Any]) -> list[Any]:
        for argument in inputs:
            if argument not in self.inputs:
                raise FeedError(
                    f"{self.name!r} has no input {argument!r}",
                    mend=nearest(argument, self.inputs),
                )
        missing = [argument for argument in self.inputs if argument not in inputs]
        if missing:
            raise FeedError(
                f"{self.name!r}: input {missing[0]!r} is missing",
                mend="inputs: " + ", ".join(f"{n}: {t}" for n, t in self.inputs.items()),
            )
        values = [spec.convert(inputs[spec.label]) for spec in self._specs]
        bind_feeds(self._ports, [v.shape for v in values], {})
        return values

    def _function(self) -> Any:
        if self._call is None:
            try:
                exported = jax.export.deserialize(bytearray(self._data))
            except Exception as error:  # whatever the parser of another version may raise
                raise ArtifactVersionError(
                    f"program {self.name!r} is not readable by jax {jax.__version__}",
                    details=[f"{type(error).__name__}: {error}", f"written by jax "
                             f"{self._model.manifest.get('jax')}"],
                    mend="install the jax it was written with, or save it again",
                ) from error
            donated = tuple(range(len(self._written)))
            self._call = jax.jit(exported.call, donate_argnums=donated, keep_unused=True)
        return self._call

    def __repr__(self) -> str:
        takes = ", ".join(f"{n}: {t}" for n, t in self.inputs.items())
        gives = ", ".join(f"{n}: {t}" for n, t in self.outputs.items())
        return f"<EntryPoint {self.name}({takes}) -> {gives}>"


def load(path: str | os.PathLike[str], *, device: jax.Device | None = None) -> Model:
    """Reads an artifact that `gc.save` wrote.

    Args:
        device: where it runs; JAX's default device otherwise.

    Raises:
        ArtifactError: no such file, or no artifact.
        ArtifactCorruptError: truncated or altered.
        ArtifactVersionError: written by a newer graphc, or not for this device's platform.
    """
    manifest, members = container.read(path)
    where = device or jax.devices()[0]
    try:
        _check_platform(manifest, where)
        weights = _weights(manifest, members["weights.safetensors"])
        return Model(manifest, weights, members, where)
    except GraphcError:
        raise
    except Exception as error:  # checksums fit, so somebody wrote it so: still no stack trace
        raise ArtifactCorruptError(
            "the artifact's manifest does not describe its members",
            details=[f"{type(error).__name__}: {error}"],
        ) from error


def _check_platform(manifest: Mapping[str, Any], device: jax.Device) -> None:
    platform = {"gpu": "cuda"}.get(device.platform, device.platform)
    if platform not in manifest["platforms"]:
        raise ArtifactVersionError(
            f"the artifact was saved for {', '.join(manifest['platforms'])}; this device is "
            f"{platform}",
            mend=f"save it with platforms=(..., {platform!r})",
        )


def _weights(manifest: Mapping[str, Any], data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    arrays = safetensors.numpy.load(data)
    return {
        row["name"]: np.frombuffer(arrays[row["key"]].tobytes(), as_dtype(row["dtype"])).reshape(
            [int(d) for d in row["shape"]]
        )
        for row in manifest["variables"]
    }


def _port(row: Mapping[str, Any]) -> Port:
    shape = tuple(d if type(d) is int else parse_dim(d) for d in row["shape"])
    return Port(row["name"], "feed", Tensor(TensorType(as_dtype(row["dtype"]), shape), row["name"]))
