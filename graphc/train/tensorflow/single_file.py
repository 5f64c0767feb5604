"""Reads TensorFlow's checkpoints of version 1: one file, a table of slices of variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from graphc.data.records.framing import import_crc32c
from graphc.ir.dtypes import Array
from graphc.train.tensorflow.schema import messages, parse
from graphc.train.tensorflow.slices import extent_of, joined
from graphc.train.tensorflow.sstable import entries
from graphc.train.tensorflow.tensors import array_of, broken, dtype_of, no_key, sizes_of


class SingleFile:
    """An open checkpoint of version 1: names, and arrays that are made when they are asked for.

    Args:
        path: of the file.

    Raises:
        ModelFileError: the file is truncated or altered.
        MissingExtraError: protobuf or google-crc32c is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        checksum = import_crc32c("reading a TensorFlow checkpoint", "tensorflow")
        messages()  # an error if protobuf is missing
        self._tensors: dict[str, Any] = {}
        self._pieces: dict[str, list[Any]] = {}
        for key, value in entries(path.read_bytes(), checksum):
            record = parse("SavedTensorSlices", value, f"the entry {key!r}")
            if key == b"":
                self._tensors = {tensor.name: tensor for tensor in record.meta.tensor}
            else:
                self._pieces.setdefault(record.data.name, []).append(record.data)
        if not self._tensors:
            raise broken(f"the checkpoint {path.name} lists no variables")

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, key: object) -> bool:
        return key in self._tensors

    def names(self) -> dict[str, str]:
        """The keys by the names of the variables, which are the same."""
        return {name: name for name in self}

    def array(self, key: str) -> Array:
        """The array of a variable.

        Raises:
            UnknownNameError: there is no such variable.
            ModelFileError: the data is missing or altered.
        """
        tensor = self._tensors.get(key)
        if tensor is None:
            raise no_key(self._name, key, self)
        what = f"{key!r} of the checkpoint"
        dtype, sizes = dtype_of(tensor.type, what), sizes_of(tensor.shape, what)
        pieces = self._pieces.get(key, [])
        parts = [self._part(piece, tensor.type, sizes, what) for piece in pieces]
        return joined(parts, sizes, dtype, what)

    def _part(
        self, piece: Any, number: int, sizes: tuple[int, ...], what: str
    ) -> tuple[tuple[slice, ...], Callable[[], Array]]:
        extents = list(piece.slice.extent)
        if extents and len(extents) != len(sizes):
            raise broken(f"a slice of {what} has {len(extents)} axes")
        whole = tuple(slice(0, size) for size in sizes)
        pairs = zip(extents, sizes, strict=False)
        where = tuple(extent_of(extent, size, what) for extent, size in pairs) or whole
        data = type(piece.data)()
        data.CopyFrom(piece.data)  # it has the numbers alone
        data.dtype = number
        del data.tensor_shape.dim[:]
        for part in where:
            data.tensor_shape.dim.add().size = part.stop - part.start
        return where, partial(array_of, data, f"a slice of {what}")
