"""`Weights`: the arrays of a file by name, each read when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import ModelFileError, UnknownNameError, nearest
from graphc.ir.dtypes import Array
from graphc.ir.source import current_source
from graphc.keyed import Keyed


@dataclass(frozen=True)
class StoredWeight:
    """Where an array is, and how it is read.

    Attributes:
        name: of the array.
        dtype, shape: of the array as it is read.
        path: the file.
        offset, bytes: its data in the file.
        decode: makes the array of the data, if they are not the elements themselves.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    path: Path
    offset: int
    bytes: int
    decode: Callable[[Array], Array] | None = None

    def read(self) -> Array:
        """The array. The file is mapped into memory, so only these bytes of it are read.

        Raises:
            ModelFileError: the file is no longer as long as it was.
        """
        try:
            mapped = np.memmap(self.path, np.uint8, "r") if self.bytes else np.zeros(0, np.uint8)
        except (OSError, ValueError) as error:
            raise damaged(self.path, f"it cannot be read: {error}") from None
        data = np.array(mapped[self.offset : self.offset + self.bytes])
        if data.size != self.bytes:
            raise damaged(self.path, f"the data of {self.name!r} end early")
        elements = data.view(self.dtype) if self.decode is None else self.decode(data)
        return elements.reshape(self.shape)


@dataclass(frozen=True)
class Weights(Keyed[Array]):
    """The arrays of a file by name. Each is read when it is asked for.

    `gc.read_safetensors` and `gc.read_gguf` return it. `gc.train.restore` takes such files too.

    Attributes:
        folder: the file.
        variables: what is known about each array.
        metadata: what else the file says, such as the name of the model.
    """

    folder: Path
    variables: Mapping[str, StoredWeight]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        found = self.variables.get(name)
        if found is None:
            raise UnknownNameError(
                f"{self.folder.name} has no array {name!r}",
                source=current_source(),
                hint=nearest(name, self.variables, "list(weights)"),
            )
        return found.read()

    def _keys(self) -> Mapping[str, StoredWeight]:
        return self.variables

    def __repr__(self) -> str:
        return f"<Weights {self.folder.name}: {len(self)} arrays>"

    def values(self, names: Sequence[str] | None = None) -> Any:
        """The arrays of these names; by default all, as of a dict."""
        if names is None:
            return super().values()
        return {name: self[name] for name in names}

    def hidden(self) -> dict[str, Array]:
        """The state of random numbers: there is none."""
        return {}


def opened_size(path: str | os.PathLike[str], function: str) -> tuple[Path, int]:
    """The path of a file and its size.

    Raises:
        ModelFileError: there is no such file.
    """
    file = Path(path)
    try:
        with file.open("rb"):
            return file, file.stat().st_size
    except OSError as error:
        raise ModelFileError(
            f"{function}: {str(file)!r} cannot be read: {error.strerror}",
            source=current_source(),
            hint="check the path",
        ) from None


def damaged(path: Path, why: str) -> ModelFileError:
    """The error for a file that is not of its format."""
    return ModelFileError(
        f"{path.name!r} is damaged, or no file of this format: {why}", source=current_source()
    )
