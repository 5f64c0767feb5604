"""The tensors of a model, and those that are in a file beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from graphc.exporters.onnx.dtypes import number_of
from graphc.ir.dtypes import Array

LARGEST: Final = 1_900_000_000
"""Bytes. Protobuf cannot hold more than 2 GiB."""

_LEAST: Final = 1024  # bytes: smaller tensors stay in the model
_ALIGNED: Final = 64
_PIECE: Final = 4 << 20  # bytes that are written at once
_PACKED: Final = ("int4", "uint4")


class Aside:
    """The large tensors of a model, which are in a file beside it.

    They are written from the arrays themselves, so that no copy of a large model is made.

    Args:
        wanted: whether there is such a file; None: if the model has more than `LARGEST` bytes.
    """

    def __init__(self, wanted: bool | None) -> None:
        self.is_used = bool(wanted)
        self._decides = wanted is None
        self._arrays: list[tuple[Any, Array]] = []
        self._size = 0

    def decide(self, size: int) -> None:
        """Says how many bytes the tensors of the model have."""
        if self._decides:
            self.is_used = size > LARGEST

    def taken(self, name: str, array: Array) -> Any:
        """The tensor without its elements, which will be in the file; None for a small one."""
        from onnx import TensorProto
        from onnx.external_data_helper import set_external_data

        if not self.is_used or array.nbytes <= _LEAST or array.dtype.name in _PACKED:
            return None
        tensor = TensorProto(name=name, data_type=number_of(array.dtype), dims=array.shape)
        self._size += -self._size % _ALIGNED
        tensor.raw_data = b""  # which `set_external_data` wants to be there
        set_external_data(tensor, "", offset=self._size, length=array.nbytes)
        tensor.ClearField("raw_data")
        self._arrays.append((tensor, array))
        self._size += array.nbytes
        return tensor

    def as_inputs(self, model: Any) -> Any:
        """The model with these tensors as inputs. ONNX's checker does not need their elements."""
        from onnx import ModelProto, helper

        if not self._arrays:
            return model
        checked = ModelProto()
        checked.CopyFrom(model)
        names = {tensor.name for tensor, _ in self._arrays}
        inside = [tensor for tensor in model.graph.initializer if tensor.name not in names]
        del checked.graph.initializer[:]
        checked.graph.initializer.extend(inside)
        checked.graph.input.extend(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            for tensor, _ in self._arrays
        )
        return checked

    def digest(self) -> str:
        """A digest of the content of the file."""
        found = hashlib.sha256()
        for piece in self.content():
            found.update(piece)
        return found.hexdigest()[:16]

    def content(self) -> Iterator[bytes | memoryview]:
        """The content of the file, piece by piece."""
        at = 0
        for _, array in self._arrays:
            yield bytes(-at % _ALIGNED)
            at += -at % _ALIGNED + array.nbytes
            data = _little(array).reshape(-1).view(np.uint8).data
            for start in range(0, len(data), _PIECE):
                yield data[start : start + _PIECE]

    def refer_to(self, model: Any, location: str) -> None:
        """Writes the name of the file into the model."""
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location


def _little(array: Array) -> Array:
    data = np.ascontiguousarray(array)
    return data.byteswap() if data.dtype.byteorder == ">" else data


def tensor_of(name: str, array: Array) -> Any:
    """The tensor with its elements."""
    from onnx import TensorProto

    data = _little(array)
    if data.dtype.name in _PACKED:  # two in a byte, the first in its low half
        halves = np.append(data.reshape(-1).astype(np.int8) & 15, [0] * (data.size % 2))
        data = (halves[::2] | halves[1::2] << 4).astype(np.uint8)
    return TensorProto(
        name=name,
        data_type=number_of(array.dtype),
        dims=array.shape,
        raw_data=data.tobytes(),
    )
