"""`gc.load`: reads an artifact. No code of the model is needed, and none in the file is run but
StableHLO."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from graphc.artifacts import container
from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.manifest import Manifest, parse_manifest
from graphc.artifacts.weights import WEIGHTS, unpack
from graphc.errors import ArtifactVersionError, AttributeValueError, UnknownNameError, nearest
from graphc.ir.types import TensorType
from graphc.runtime.executors import place_on
from graphc.runtime.state import State, StateLayout, public_names


class Signatures(Mapping[str, EntryPoint]):
    """The entry points of an artifact by name."""

    def __init__(self, entries: Mapping[str, EntryPoint]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> EntryPoint:
        found = self._entries.get(name)
        if found is None:
            raise UnknownNameError(
                f"no signature {name!r} in the artifact", mend=nearest(str(name), self._entries)
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Signatures {', '.join(self._entries)}>"


class Model:
    """A loaded artifact: its entry points, and the weights it was saved with. Made by `gc.load`.

    Attributes:
        signatures: the entry points by name.
        manifest: what the file says of itself: versions, platforms, ...
        device: where it runs.
    """

    def __init__(
        self,
        manifest: Manifest,
        weights: Mapping[str, np.ndarray[Any, Any]],
        programs: Mapping[str, memoryview],
        device: jax.Device,
    ) -> None:
        self.manifest = manifest
        self.device = device
        self._layout = StateLayout({row.value.name: row.value.type for row in manifest.variables})
        self._weights = [weights[name] for name in self._layout.types]
        self._saved: State | None = None
        self.signatures = Signatures(
            {
                name: EntryPoint(
                    name,
                    entry,
                    programs[entry.program],
                    layout=self._layout,
                    saved_state=self._saved_state,
                    device=device,
                    written_by=manifest.jax,
                )
                for name, entry in manifest.signatures.items()
            }
        )

    def state(self) -> State:
        """A fresh state with the saved values: what a training entry point starts from."""
        return State(self._layout, [place_on(value, self.device) for value in self._weights])

    def _saved_state(self) -> State:
        """The saved values, placed once: for entry points that only read."""
        if self._saved is None:
            self._saved = self.state()
        return self._saved

    @property
    def variables(self) -> dict[str, TensorType]:
        """The types of the variables by name, in the order of the graph."""
        return {name: self._layout.types[name] for name in public_names(self._layout.types)}

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms it was lowered for."""
        return self.manifest.platforms

    def __repr__(self) -> str:
        return f"<Model {self.manifest.graph}: {', '.join(self.signatures)}>"


def load(path: str | os.PathLike[str], *, device: jax.Device | None = None) -> Model:
    """Reads an artifact that `gc.save` wrote.

    Args:
        device: where it runs; JAX's default device otherwise.

    Raises:
        ArtifactError: no such file, or no artifact.
        ArtifactCorruptError: truncated or altered.
        ArtifactVersionError: written by a newer graphc, or not for this device's platform.

    >>> load("nothing.gcx")
    Traceback (most recent call last):
    graphc.errors.ArtifactError: no file 'nothing.gcx'
      mend: check the path
    """
    if device is not None and not isinstance(device, jax.Device):
        raise AttributeValueError(
            f"load: device must be a jax.Device, got {device!r}", mend="pass jax.devices()[0]"
        )
    manifest, members = read(path)
    where = device or jax.local_devices()[0]
    platform = platform_of(where)
    if platform not in manifest.platforms:
        raise ArtifactVersionError(
            f"the artifact was saved for {', '.join(manifest.platforms)}; this device is "
            f"{platform}",
            mend=f"save it with platforms=(..., {platform!r}), or load it on another device",
        )
    weights = unpack(manifest.variables, members[WEIGHTS])
    return Model(manifest, weights, members, where)


def read(path: str | os.PathLike[str]) -> tuple[Manifest, dict[str, memoryview]]:
    """The manifest and the members of an artifact, for looking inside; nothing is placed.

    Raises:
        ArtifactError: as `load`.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise AttributeValueError(f"load: the path must be a str or a Path, got {path!r}")
    data, members = container.read(path)
    manifest = parse_manifest(data, list(members))
    if WEIGHTS not in members:
        raise container.damaged(str(path), f"it has no member {WEIGHTS!r}")
    return manifest, members


def platform_of(device: jax.Device) -> str:
    """The platform of a device under the name that `gc.save` takes."""
    if device.platform != "gpu":
        return str(device.platform)
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
