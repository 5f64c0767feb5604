"""Reads serialised programs. Every field is checked before use, because the data may come from
anyone."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from graphc.errors import DeviceError, GraphcError, SerialError, VerifyError
from graphc.ir.catalogue import Catalogue
from graphc.ir.device_spec import parse_device
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import Dim
from graphc.ir.dtypes import BY_SHORT, Array, DType
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.sharding import Spec, is_spec
from graphc.ir.source import Source
from graphc.ir.types import TensorType, split_dims
from graphc.ir.values import array_of_bytes
from graphc.ir.verify import verify

FORMAT = "graphc-ir"
VERSION = 1

_MAX_DEPTH = 50  # the nesting depth of values and regions
_MAX_TEXT = 1000  # characters of a type or a dim
_MAX_RANK = 64  # NumPy's limit
_MAX_SIZE = 2**63 - 1

_WORDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    bool: "true or false",
}


class Reader:
    """Reads one manifest. `where` is the path of the current part, for errors."""

    def __init__(
        self, manifest: Mapping[str, Any], arrays: Mapping[str, Array], catalogue: Catalogue
    ) -> None:
        record: object = manifest  # it may be of any type, despite the annotation
        if not isinstance(record, Mapping) or record.get("format") != FORMAT:
            raise SerialError("this is not serialised IR of graphc")
        version = manifest.get("version")
        if type(version) is not int or version < 1:
            raise SerialError(f"version must be a positive integer, got {version!r:.80}")
        if version > VERSION:
            raise SerialError(
                f"the IR has version {version}, but this graphc reads versions up to {VERSION}",
                hint="install a newer graphc",
            )
        self._manifest = manifest
        self._arrays = arrays
        self._catalogue = catalogue
        self._depth = 0
        texts = self.field(manifest, "types", list, "manifest")
        self._types = [self._type_of(text, f"types[{i}]") for i, text in enumerate(texts)]
        self._table = self.field(manifest, "arrays", dict, "manifest")
        self._loaded: dict[str, Array] = {}

    def read_program(self) -> Program:
        """The program in a manifest of the kind `program`."""
        program = self.program(self.content("program"), "program")
        try:
            verify(program, "captured")
        except VerifyError as error:
            self.invalid("program", error)
        return program

    def content(self, kind: str) -> Any:
        if self._manifest.get("kind") != kind:
            found = self._manifest.get("kind")
            raise SerialError(f"the manifest is of a {found!r:.80}, not of a {kind}")
        return self._manifest.get(kind)

    def invalid(self, kind: str, error: VerifyError) -> NoReturn:
        raise SerialError(
            f"not a valid {kind}: {error.what}", details=error.details, source=error.source
        ) from error

    # -- checks -----------------------------------------------------------------------------

    def fail(
        self, where: str, what: str, cause: Exception | None = None, hint: str | None = None
    ) -> NoReturn:
        details = cause.details if isinstance(cause, GraphcError) else ()
        raise SerialError(f"{where}: {what}", details=details, hint=hint) from cause

    def expect(self, value: Any, kind: type, where: str) -> Any:
        """`value`, which must be exactly of the JSON type `kind`."""
        if type(value) is not kind:
            self.fail(where, f"expected {_WORDS[kind]}, got {value!r:.80}")
        return value

    def field(self, record: Any, name: str, kind: type, where: str, default: Any = None) -> Any:
        """A field of `record`, which must be an object. The field has the JSON type `kind`."""
        if not isinstance(record, Mapping):
            self.fail(where, f"expected an object, got {record!r:.80}")
        if name not in record and default is not None:
            return default
        return self.expect(record.get(name), kind, f"{where}.{name}")

    def strings(self, record: Any, name: str, where: str) -> tuple[str, ...]:
        items = self.field(record, name, list, where, [])
        return tuple(self.expect(item, str, f"{where}.{name}") for item in items)

    def index(self, value: Any, count: int, what: str, where: str) -> int:
        """A number from 0 to `count` - 1."""
        if type(value) is not int or not 0 <= value < count:
            self.fail(where, f"expected the number of a {what} below {count}, got {value!r:.80}")
        return value

    def triple(self, value: Any, where: str) -> tuple[Any, Any, Any]:
        if type(value) is not list or len(value) != 3:
            self.fail(where, f"expected a list of 3, got {value!r:.80}")
        return value[0], value[1], value[2]

    def _enter(self, where: str) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self.fail(where, f"nested more than {_MAX_DEPTH} levels deep")

    # -- types and dims ---------------------------------------------------------------------

    def _text(self, text: Any, where: str) -> str:
        """The text of a type or dim. It must be short and have no products of sums, whose expansion
        may be very long."""
        self.expect(text, str, where)
        if len(text) > _MAX_TEXT or "(" in text.replace("floordiv(", ""):
            self.fail(where, f"expected a type or a dim, got {text!r:.80}")
        return str(text)

    def _parsed(self, parse: Callable[[str], Any], text: str, where: str) -> Any:
        try:
            return parse(text)
        except (GraphcError, ValueError, RecursionError) as error:
            self.fail(where, f"{text!r:.80} is not a dim or a list of dims", error)

    def dim(self, text: Any, where: str) -> Dim:
        dim: Dim = self._parsed(parse_dim, self._text(text, where), where)
        return dim

    def _type_of(self, text: Any, where: str) -> TensorType:
        name, bracket, inner = self._text(text, where).partition("[")
        if not bracket or not inner.endswith("]") or name not in BY_SHORT:
            self.fail(where, f"expected a type such as 'f32[batch, 784]', got {text!r:.80}")
        shape = tuple(self._parsed(split_dims, inner[:-1], where))
        if len(shape) > _MAX_RANK or any(
            isinstance(dim, int) and not 0 <= dim <= _MAX_SIZE for dim in shape
        ):
            self.fail(where, f"no tensor has the type {text!r:.80}")
        return TensorType(BY_SHORT[name], shape)

    def type(self, number: Any, where: str) -> TensorType:
        return self._types[self.index(number, len(self._types), "type", where)]

    def dtype(self, name: Any, where: str) -> DType:
        if type(name) is not str or name not in BY_SHORT:
            self.fail(where, f"expected a dtype such as 'f32', got {name!r:.80}")
        return BY_SHORT[name]

    # -- programs ---------------------------------------------------------------------------

    def program(self, record: Any, where: str) -> Program:
        self._enter(where)
        tensors: list[Tensor] = []
        inputs = []
        for i, port in enumerate(self.field(record, "inputs", list, where)):
            at = f"{where}.inputs[{i}]"
            name, kind, number = self.triple(port, at)
            tensors.append(Tensor(self.type(number, at), self.expect(name, str, at)))
            inputs.append(Port(name, self.expect(kind, str, at), tensors[-1]))
        nodes = self.nodes(record, where, tensors)
        outputs = []
        for i, port in enumerate(self.field(record, "outputs", list, where)):
            at = f"{where}.outputs[{i}]"
            name, kind, number = self.triple(port, at)
            tensor = tensors[self.index(number, len(tensors), "tensor", at)]
            outputs.append(Port(self.expect(name, str, at), self.expect(kind, str, at), tensor))
        axes = self.field(record, "batch_axes", dict, where)
        for name, axis in axes.items():
            self.expect(axis, int, f"{where}.batch_axes.{name}")
        shards = self.field(record, "shards", dict, where, {})
        self._depth -= 1
        return Program(
            self.field(record, "name", str, where),
            tuple(inputs),
            nodes,
            tuple(outputs),
            self.equalities(record, where),
            dict(axes),
            {name: self.spec(value, f"{where}.shards.{name}") for name, value in shards.items()},
        )

    def spec(self, value: Any, where: str) -> Spec:
        """The spec of a tensor on a mesh."""
        spec = self.value(value, where)
        if not is_spec(spec):
            self.fail(where, f"expected the mesh axes to split along, got {value!r:.80}")
        found: Spec = spec
        return found

    def equalities(self, record: Any, where: str) -> tuple[tuple[Dim, Dim], ...]:
        pairs = []
        for i, pair in enumerate(self.field(record, "equalities", list, where)):
            at = f"{where}.equalities[{i}]"
            if type(pair) is not list or len(pair) != 2:
                self.fail(at, f"expected two dims, got {pair!r:.80}")
            pairs.append((self.dim(pair[0], at), self.dim(pair[1], at)))
        return tuple(pairs)

    def nodes(self, record: Any, where: str, tensors: list[Tensor]) -> tuple[Node, ...]:
        """The nodes, whose results are appended to `tensors`."""
        records = self.field(record, "nodes", list, where)
        return tuple(
            [self._node(node, f"{where}.nodes[{i}]", tensors) for i, node in enumerate(records)]
        )

    def _node(self, record: Any, where: str, tensors: list[Tensor]) -> Node:
        op_name = self.field(record, "op", str, where)
        if op_name not in self._catalogue:
            hint = self._catalogue.hint_for(op_name)
            self.fail(where, f"no operator {op_name!r:.80} in this graphc", hint=hint)
        op = self._catalogue[op_name]
        name = self.field(record, "name", str, where, "")
        count = len(tensors)
        numbers = self.field(record, "in", list, where, [])
        inputs = tuple([tensors[self.index(n, count, "tensor", where)] for n in numbers])
        given = self.field(record, "attrs", dict, where, {})
        attrs = {key: self.value(value, f"{where}.attrs.{key}") for key, value in given.items()}
        try:
            complete = op.complete(attrs)
        except GraphcError as error:
            self.fail(where, error.what, error)
        regions = self.field(record, "regions", list, where, [])
        types = [self.type(n, where) for n in self.field(record, "out", list, where, [])]
        outputs = tuple([Tensor(t, f"{name}:{i}" if name else "") for i, t in enumerate(types)])
        tensors += outputs
        bodies = tuple([self.program(r, f"{where}.regions[{i}]") for i, r in enumerate(regions)])
        source, device = self.source(record, where), self.device(record, where)
        after = self.strings(record, "after", where)
        return Node(op, inputs, outputs, complete, bodies, name, source, device, after)

    def source(self, record: Any, where: str) -> Source | None:
        text = self.field(record, "source", str, where, "")
        file, _, line = text.rpartition(":")
        if not text:
            return None
        is_name = file != "" and os.path.basename(file) == file
        if not is_name or not (line.isascii() and line.isdigit()) or len(line) > 9:
            self.fail(where, f"expected a source such as 'train.py:12', got {text!r:.80}")
        return Source(file, int(line))

    def device(self, record: Any, where: str) -> str:
        name: str = self.field(record, "device", str, where, "")
        try:
            parse_device(name)
        except (DeviceError, ValueError) as error:
            self.fail(where, f"{name!r:.80} is not a device name", error)
        return name

    # -- values -----------------------------------------------------------------------------

    def value(self, value: Any, where: str) -> Any:
        """A value of an attribute from its JSON form; see `_Dumper._value`."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            self._enter(where)
            items = tuple([self.value(item, where) for item in value])
            self._depth -= 1
            return items
        if type(value) is not dict or len(value) != 1:
            self.fail(where, f"expected a value, got {value!r:.80}")
        ((tag, content),) = value.items()
        if tag == "dim":
            return self.dim(content, where)
        if tag == "dtype":
            return self.dtype(content, where)
        if tag == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if tag == "complex" and type(content) is list and len(content) == 2:
            parts = [self.value(x, where) for x in content]
            if all(type(x) is float for x in parts):
                return complex(*parts)
        if tag == "array":
            return self._array(content, where)
        if tag == "attrs" and type(content) is dict:
            self._enter(where)
            values = {name: self.value(item, f"{where}.{name}") for name, item in content.items()}
            self._depth -= 1
            return values
        self.fail(where, f"expected a value, got {value!r:.80}")

    def _array(self, content: Any, where: str) -> Array:
        if type(content) is not str:
            text = self.field(content, "data", str, where)
            try:
                data = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                self.fail(where, "the data of an array are not base64", error)
            return self._array_of(content, data, where)
        found = self._loaded.get(content)
        if found is not None:
            return found
        at = f"arrays.{content:.80}"
        record = self.field(self._table, content, dict, "arrays")
        raw = self._arrays.get(content)
        if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.ndim != 1:
            self.fail(at, "its bytes are missing")
        data = raw.tobytes()
        if hashlib.sha256(data).hexdigest() != self.field(record, "sha256", str, at):
            self.fail(at, "its checksum does not match: the data were altered")
        found = self._loaded[content] = self._array_of(record, data, at)
        return found

    def _array_of(self, record: Any, data: bytes, where: str) -> Array:
        dtype = self.dtype(record.get("dtype"), where)
        shape = self.field(record, "shape", list, where)
        if len(shape) > _MAX_RANK or not all(
            type(size) is int and 0 <= size <= _MAX_SIZE for size in shape
        ):
            self.fail(where, f"no array has the shape {shape!r:.80}")
        try:
            return array_of_bytes(data, dtype, shape)
        except ValueError as error:
            self.fail(where, f"an array of this type and shape {shape!r:.80} needs {error}", error)
