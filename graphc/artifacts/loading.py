"""`gc.load`: opens an artifact. The model's code is not needed. Only XLA operations from the file
run, unless its native code is trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
from jax.sharding import SingleDeviceSharding

from graphc.artifacts import container
from graphc.artifacts.container import Members
from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.limits import Limits
from graphc.artifacts.manifest import Entry, Manifest
from graphc.artifacts.manifest_read import parse_manifest
from graphc.artifacts.sharing import Sharing
from graphc.artifacts.source import Source
from graphc.artifacts.state import ModelState, Saved
from graphc.artifacts.weights import WEIGHTS, Weights
from graphc.copying import Uncopied
from graphc.devices.discovery import platform_of
from graphc.devices.strategy import DataParallel
from graphc.errors import (
    ArgumentError,
    ArtifactVersionError,
    AttributeValueError,
    DeviceError,
    UnknownNameError,
    nearest,
)
from graphc.ir.members import Helpful
from graphc.ir.types import TensorType
from graphc.keyed import Keyed
from graphc.runtime.buffers.layout import public_names
from graphc.runtime.core.across import refuse_processes
from graphc.runtime.core.forking import FORKING


class Signatures(Keyed[EntryPoint]):
    """The entry points of an artifact by name."""

    def __init__(self, entries: Mapping[str, EntryPoint]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> EntryPoint:
        found = self._entries.get(name)
        if found is None:
            raise UnknownNameError.here(
                f"no signature {name!r} in the artifact",
                hint=nearest(str(name), self._entries, "loaded.signatures"),
            )
        return found

    def _keys(self) -> Mapping[str, EntryPoint]:
        return self._entries

    def __repr__(self) -> str:
        return f"<Signatures {', '.join(self._entries)}>"


class Model(Helpful, Uncopied):
    """A loaded artifact: its entry points, and the weights it was saved with. `gc.load` returns it.

    The file stays open. A weight is read, checked and put on the device when an entry point that
    needs it is first called. All entry points on one device share it.

    Attributes:
        signatures: the entry points by name.
        manifest: the file's description of itself: versions, platforms, ...
        device: the device on which entry points for one device run.
    """

    instead = "send the path of the file, and load it again with gc.load"

    def __init__(
        self,
        manifest: Manifest,
        members: Members,
        signatures: Mapping[str, EntryPoint],
        saved: Saved,
    ) -> None:
        self.manifest = manifest
        self.signatures = Signatures(signatures)
        self._members = members
        self._saved = saved

    if not TYPE_CHECKING:  # type checkers reject such a call

        def __call__(self, *args: Any, **inputs: Any) -> NoReturn:
            named = next(iter(self.signatures), "predict")
            hint = f"loaded.signatures[{named!r}](x=values), with the inputs by name"
            if self.manifest.call is not None:
                hint = "gc.load_function(path) gives the function that gc.jit(f).save(path) wrote"
            raise ArgumentError.here("a model is not a function: it has entry points", hint=hint)

    def state(self) -> ModelState:
        """A new state with the saved values, from which training can start."""
        return ModelState(self._saved, {})

    def release(self) -> None:
        """Frees the weights on devices and the compiled programs, at once.

        A call of an entry point reads and compiles again. Without `release`, they are freed by
        Python's garbage collector: JAX creates reference cycles.
        """
        self._saved.release()
        for point in self.signatures.values():
            point.release()

    @property
    def device(self) -> jax.Device:
        """The device on which entry points for one device run."""
        (device,) = self._saved.home.device_set
        return device

    @property
    def path(self) -> str:
        """The file's path, as it was opened."""
        return self._members.path

    @property
    def variables(self) -> dict[str, TensorType]:
        """The types of the variables by name, in the order of the graph."""
        types = self._saved.types
        return {name: types[name] for name in public_names(types)}

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms it was lowered for."""
        return self.manifest.platforms

    @property
    def notes(self) -> list[str]:
        """The form of each program that has been called so far, and why earlier forms were not
        used."""
        return [
            f"{name}: {line}" for name, point in self.signatures.items() for line in point.notes
        ]

    @property
    def bytes_read(self) -> int:
        """How many bytes of the file have been read so far."""
        return self._members.bytes_read

    def __repr__(self) -> str:
        return f"<Model {self.manifest.graph}: {', '.join(self.signatures)}>"


def load(
    path: str | os.PathLike[str],
    *,
    device: jax.Device | None = None,
    strategy: DataParallel | None = None,
    trust_native: bool = False,
    limits: Limits | None = None,
) -> Model:
    """Opens an artifact that `gc.save` wrote.

    For each program the first form that can be used here is chosen: StableHLO if this JAX can read
    it, otherwise the graph, which is lowered again. `model.signatures[name].way` names the chosen
    form.

    Args:
        device: the device on which entry points for one device run; JAX's default device otherwise.
        strategy: the devices for entry points that were saved for several devices; by default the
            first devices, as many as they were saved for. With another number, their graph is
            lowered again.
        trust_native: run the native code in the file if it was compiled for exactly this
            environment. Native code can do whatever the process can do. Use this option only for
            your own files, or for files from a source whose programs you would run.
        limits: bounds on the resources of programs, see `gc.Limits`; by default there are none.

    Raises:
        ArtifactError: the file does not exist, or is not an artifact.
        ArtifactCorruptError: the file is truncated or altered. Members that are read later are
            checked later.
        ArtifactVersionError: a newer graphc wrote the file, or it is for other platforms.

    Examples:
        >>> import tempfile
        >>> x = gc.placeholder(("batch",), name="x")
        >>> double = gc.Signature({"x": x}, {"y": 2.0 * x})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/model.gcx"
        ...     gc.save(gc.Session(graph), path, signatures={"double": double}, platforms=["cpu"])
        ...     model = gc.load(path)
        >>> list(model.signatures), model.signatures["double"](x=[1.0, 2.0])
        (['double'], {'y': Array([2., 4.], dtype=float32)})
    """
    how = Loading(device, strategy, trust_native, limits)
    how.check()
    return open_model(path, how)


class Loading(NamedTuple):
    """How an artifact is loaded: the arguments of `load`."""

    device: jax.Device | None = None
    strategy: DataParallel | None = None
    trust_native: bool = False
    limits: Limits | None = None

    def check(self) -> None:
        """Raises AttributeValueError for values of other types."""
        device, strategy, trust_native, limits = self
        if device is not None and not isinstance(device, jax.Device):
            raise AttributeValueError(
                f"load: device must be a jax.Device, got {device!r}", hint="pass jax.devices()[0]"
            )
        if strategy is not None and not isinstance(strategy, DataParallel):
            raise AttributeValueError(
                f"load: strategy must be a strategy, got {strategy!r}",
                hint="pass gc.devices.DataParallel(2)",
            )
        if type(trust_native) is not bool:
            raise AttributeValueError(f"load: trust_native must be a bool, got {trust_native!r}")
        if limits is not None and not isinstance(limits, Limits):
            raise AttributeValueError(
                f"load: limits must be gc.Limits, got {limits!r}",
                hint="pass gc.Limits(seconds=60)",
            )


def open_model(
    path: str | os.PathLike[str], how: Loading | None = None, sharing: Sharing | None = None
) -> Model:
    """`load`, for callers that load several artifacts.

    Args:
        sharing: what the artifacts share, and the pace at which they are read; None: nothing.
    """
    device, strategy, trust_native, limits = how or Loading()
    sharing = sharing or Sharing(arrays=None)
    manifest, members = read(path, sharing.pace)
    FORKING.use_devices()
    where = device or jax.local_devices()[0]
    _check_platform(manifest, platform_of(where))
    types = {row.value.name: row.value.type for row in manifest.variables}
    weights = Weights(manifest.variables, members)
    saved = Saved(types, weights, SingleDeviceSharding(where), sharing.arrays)

    def entry_point(name: str, entry: Entry) -> EntryPoint:
        devices, lacking = _devices(name, entry, where, strategy)
        loaded = (name, entry, manifest, members, devices, platform_of(devices[0]))
        bounds = limits or Limits()
        source = Source(*loaded, trust_native, bounds, sharing.cache, sharing.most_steps)
        return EntryPoint(source, saved, lacking=lacking)

    points = {name: entry_point(name, entry) for name, entry in manifest.signatures.items()}
    return Model(manifest, members, points, saved)


def _check_platform(manifest: Manifest, platform: str) -> None:
    """Rejects a file that has no program for this platform. Graphs work on any platform."""
    only = [name for name, entry in manifest.signatures.items() if entry.graph is None]
    if platform not in manifest.platforms and only:
        raise ArtifactVersionError(
            f"the artifact was saved for {', '.join(manifest.platforms)}; this device is "
            f"{platform}",
            hint=f"save it with platforms=(..., {platform!r}), or load it on another device",
        )


def _devices(
    name: str, entry: Entry, where: jax.Device, strategy: DataParallel | None
) -> tuple[tuple[jax.Device, ...], Any]:
    """The devices of an entry point; and, if there are too few, a function that creates the
    error."""
    if entry.devices == 1:
        return (where,), None
    if strategy is not None:
        refuse_processes(strategy, "load")
        return strategy.resolve(), None
    found = tuple(jax.local_devices(backend=where.platform))
    if len(found) >= entry.devices:
        return found[: entry.devices], None

    def lacking() -> DeviceError:
        other = f"gc.load(path, strategy=gc.devices.DataParallel({len(found)})) lowers its graph"
        return DeviceError(
            f"{name!r} was saved for {entry.devices} devices, but only {len(found)} are available",
            hint=f"{other} for the available devices" if entry.graph is not None else None,
        )

    return found, lacking


def read(
    path: str | os.PathLike[str], pace: Callable[[], None] = lambda: None
) -> tuple[Manifest, Members]:
    """The manifest and the members of an artifact, for inspection. Nothing is transferred to
    devices.

    Args:
        pace: called after each piece of the file that is read.

    Raises:
        ArtifactError: as for `load`.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise AttributeValueError(f"load: the path must be a str or a Path, got {path!r}")
    data, members = container.read(path, pace)
    manifest = parse_manifest(data, list(members))
    if WEIGHTS not in members:
        raise container.damaged(str(path), f"it has no member {WEIGHTS!r}")
    return manifest, members
