"""A file as records, whose indices, counts and sizes are checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphc.importers.tflite.flatbuffer import File, Table, broken
from graphc.importers.tflite.schema import DTYPES, NAMES, OPTIONS
from graphc.ir.dtypes import Array
from graphc.train.tensorflow.tensors import DTypeNumber

IDENTIFIER = b"TFL3"
_MOST_AXES, _MOST_ELEMENTS = 32, 1 << 48
_INTEGERS = frozenset((2, 3, 4, 7, 9, 12, 15, 16, 17, 20))  # dtypes that may be quantised
_HALF_BYTES = {17: np.int8, 20: np.uint8}  # two elements in each byte


@dataclass(frozen=True)
class Quantization:
    """The real value of an integer q is (q - zero) * scale.

    Attributes:
        scale, zero: one number, or one for each index along `axis`.
        axis: the axis of scales; not used if there is one scale.
    """

    scale: tuple[float, ...]
    zero: tuple[int, ...]
    axis: int

    def arrays(self, rank: int) -> tuple[Array, Array]:
        """The scales as float32 and the zeros as int32, so that they broadcast with the tensor."""
        shape = [1] * rank
        if len(self.scale) > 1:
            shape[self.axis] = len(self.scale)
        scale, zero = np.array(self.scale, np.float32), np.array(self.zero, np.int32)
        if len(self.scale) == 1:
            return scale.reshape(()), zero.reshape(())
        return scale.reshape(shape), zero.reshape(shape)


@dataclass(frozen=True)
class LiteTensor:
    """A tensor of a subgraph.

    Attributes:
        name: in the file.
        shape: the sizes, -1 where they are not known.
        kind: the number of its dtype in the schema.
        buffer: the number of the buffer with its value; that of variables and results is empty.
        quantization: None for a tensor whose elements are the values themselves.
        is_variable: whether it is state that is kept between runs.
        is_sparse: whether the buffer leaves out zeros.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    buffer: int
    quantization: Quantization | None
    is_variable: bool
    is_sparse: bool

    @property
    def dtype(self) -> DTypeNumber:
        """The dtype; 4-bit integers are int8 and uint8."""
        return DTypeNumber({17: 6, 20: 4}.get(self.kind, DTYPES[self.kind]))


@dataclass(frozen=True)
class Operator:
    """An operator of a subgraph.

    Attributes:
        name: such as "CONV_2D", or "CUSTOM " and a name.
        inputs: the numbers of tensors, -1 for one that is left out.
        outputs: the numbers of tensors.
        options: the options that are read, by name.
        intermediates: the numbers of tensors that have no values, only scales.
    """

    name: str
    inputs: list[int]
    outputs: list[int]
    options: dict[str, Any]
    intermediates: list[int]


@dataclass(frozen=True)
class Subgraph:
    """A subgraph: tensors, and operators in the order in which they run."""

    tensors: list[LiteTensor]
    inputs: list[int]
    outputs: list[int]
    operators: list[Operator]


@dataclass(frozen=True)
class Signature:
    """The names of a subgraph's inputs and outputs, each with the number of its tensor."""

    inputs: dict[str, int]
    outputs: dict[str, int]
    subgraph: int


class LiteModel:
    """A model. Raises ModelFileError where the file is inconsistent."""

    def __init__(self, data: bytes) -> None:
        if data[4:8] != IDENTIFIER:
            raise broken(f"the file has no identifier {IDENTIFIER.decode()}")
        self._file = File(data)
        root = self._file.root()
        version = root.number(0, "I")
        if version != 3:
            raise broken(f"the schema has version {version}, where 3 is read")
        self._codes = [_operator_name(code) for code in root.tables(1)]
        self._graphs = root.tables(2)
        self._buffers = root.tables(4)
        self._signatures = root.tables(7)
        self._read: dict[int, Subgraph] = {}
        self._data: dict[int, memoryview] = {}
        self._constants: dict[tuple[Any, ...], Array] = {}
        self._left = 64 * len(data) + (1 << 26)  # bytes that constants may take
        if not self._graphs:
            raise broken("the file has no subgraph")

    @property
    def count(self) -> int:
        """The number of subgraphs."""
        return len(self._graphs)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """The signatures by name."""
        found = {}
        for table in self._signatures:
            maps = [
                {entry.text(0): int(entry.number(1, "I")) for entry in table.tables(field)}
                for field in (0, 1)
            ]
            found[table.text(2)] = Signature(maps[0], maps[1], table.number(4, "I"))
        return found

    def subgraph(self, index: int) -> Subgraph:
        """The subgraph of a number."""
        if not 0 <= index < len(self._graphs):
            raise broken(f"there is no subgraph {index}")
        if index not in self._read:
            table = self._graphs[index]
            tensors = [self._tensor(t) for t in table.tables(0)]
            ends = [_indices(table.vector(field, "i"), len(tensors)) for field in (1, 2)]
            operators = [self._operator(t, len(tensors)) for t in table.tables(3)]
            self._read[index] = Subgraph(tensors, ends[0], ends[1], operators)
        return self._read[index]

    def _operator(self, table: Table, count: int) -> Operator:
        code = table.number(0, "I")
        if code >= len(self._codes):
            raise broken(f"an operator has the code {code} of {len(self._codes)}")
        name = self._codes[code]
        inputs = _indices(table.vector(1, "i"), count, least=-1)
        outputs = _indices(table.vector(2, "i"), count)
        is_second = name.startswith("STABLEHLO")
        options = _options(name, table.table(12 if is_second else 4))
        inner = _indices(table.vector(8, "i"), count, -1)
        return Operator(name, inputs, outputs, options, inner)

    def _tensor(self, table: Table) -> LiteTensor:
        name = table.text(3)
        shape, signature = table.vector(0, "i"), table.vector(7, "i")
        shape = signature if len(signature) == len(shape) else shape
        is_large = math.prod(max(size, 1) for size in shape) > _MOST_ELEMENTS
        if len(shape) > _MOST_AXES or any(size < -1 for size in shape) or is_large:
            raise broken(f"the tensor {name[:100]!r} has the shape {shape[:_MOST_AXES]}")
        kind, buffer = table.number(1, "b"), table.number(2, "I")
        if kind not in DTYPES or buffer >= max(len(self._buffers), 1):
            raise broken(f"the tensor {name[:100]!r} has the dtype {kind} and the buffer {buffer}")
        made = _quantization(table.table(4), name, shape) if kind in _INTEGERS else None
        is_sparse = table.table(6) is not None
        is_variable = table.number(5, "?")
        return LiteTensor(name, tuple(shape), kind, buffer, made, is_variable, is_sparse)

    def bytes_of(self, tensor: LiteTensor) -> memoryview:
        """The bytes of a constant; none if the tensor is computed."""
        if not 0 < tensor.buffer < len(self._buffers):
            return memoryview(b"")
        if tensor.buffer not in self._data:
            table = self._buffers[tensor.buffer]
            start, size = table.number(1, "Q"), table.number(2, "Q")
            if start > 1 and size:  # behind the tables, in files that are larger than 2 GiB
                self._file.check(start, size)
                found = memoryview(self._file.data)[start : start + size]
            else:
                found = table.data(0)
            self._data[tensor.buffer] = found
        return self._data[tensor.buffer]

    def is_constant(self, tensor: LiteTensor) -> bool:
        """Whether the file has the value of a tensor that no operator computes."""
        return bool(self.bytes_of(tensor)) or (0 in tensor.shape and not tensor.is_variable)

    def constant(self, tensor: LiteTensor, *, real: bool = False) -> Array:
        """The value of a constant.

        Args:
            real: of quantised tensors and of float16, the real values in float32.
        """
        scales = tensor.quantization if real else None
        key = (tensor.buffer, tensor.kind, tensor.shape, real, scales)
        if key not in self._constants:
            array = self._array(tensor)
            self._take(array.nbytes)
            if real:
                self._take(array.size * 4)
                array = real_values(array, tensor.quantization)
            self._constants[key] = array
        return self._constants[key]

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise broken("its constants are much larger than the file")

    def _array(self, tensor: LiteTensor) -> Array:
        data, dtype = self.bytes_of(tensor), tensor.dtype.dtype
        count = math.prod(tensor.shape)
        if tensor.kind in _HALF_BYTES and len(data) * 2 in (count, count + 1):
            halves = np.frombuffer(data, np.uint8)
            self._take(4 * count)
            pairs = np.stack([halves & 15, halves >> 4], -1).reshape(-1)[:count].astype(np.int8)
            signed = pairs - (pairs & 8) * 2 if tensor.kind == 17 else pairs
            return signed.astype(_HALF_BYTES[tensor.kind]).reshape(tensor.shape)
        if min(tensor.shape, default=0) < 0 or len(data) != count * dtype.itemsize:
            raise broken(
                f"the constant {tensor.name[:100]!r} has {len(data)} bytes for "
                f"{dtype.name}{list(tensor.shape)}"
            )
        flat: Array = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype)
        return (flat != 0 if dtype.kind == "b" else flat).reshape(tensor.shape)


def real_values(array: Array, quantization: Quantization | None) -> Array:
    """The real values of integers, in float32."""
    if quantization is None:
        return array.astype(np.float32)
    scale, zero = quantization.arrays(array.ndim)
    real = (array.astype(np.int64) - zero) * scale.astype(np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(real, np.float32)


def _indices(values: list[int], count: int, least: int = 0) -> list[int]:
    if any(not least <= value < count for value in values):
        raise broken(f"a tensor has a number outside of {count}")
    return values


def _operator_name(table: Table) -> str:
    code = max(table.number(0, "b"), table.number(3, "i"))
    if not 0 <= code < len(NAMES):
        return f"the operator of the code {code}"
    return f"CUSTOM {table.text(1)[:100]}" if NAMES[code] == "CUSTOM" else NAMES[code]


def _quantization(table: Table | None, name: str, shape: list[int]) -> Quantization | None:
    if table is None:
        return None
    scale, zero, axis = table.vector(2, "f"), table.vector(3, "q"), table.number(6, "i")
    if not scale:
        return None
    zero = zero or [0]
    zero = zero * len(scale) if len(zero) == 1 else zero
    fits = len(scale) == 1 or (0 <= axis < len(shape) and shape[axis] == len(scale))
    sound = all(math.isfinite(s) and s >= 0 for s in scale)
    if not fits or not sound or len(zero) != len(scale) or table.number(4, "B"):
        raise broken(f"the tensor {name[:100]!r} has scales that do not fit its shape")
    if any(abs(z) > 1 << 30 for z in zero):
        raise broken(f"the tensor {name[:100]!r} has a zero point out of range")
    return Quantization(tuple(scale), tuple(zero), axis)


def _options(name: str, table: Table | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, entry in enumerate(OPTIONS.get(name, "").split()):
        key, _, code = entry.partition(":")
        code, _, default = code.partition("=")
        if code == "s":
            found[key] = "" if table is None else table.text(field)
        elif code.startswith("["):
            found[key] = [] if table is None else table.vector(field, code[1:])
        else:
            absent = float(default or 0) if code == "f" else int(default or 0)
            found[key] = absent if table is None else table.number(field, code, absent)
    return found
