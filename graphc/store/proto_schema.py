"""Protobuf message classes made from the text of a schema, without a compiler of .proto files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_TOKENS = re.compile(r"map<string, (\w+)>|\w+|[{};=]")


def message_classes(package: str, schema: str) -> SimpleNamespace:
    """The classes of the messages of a schema, as attributes.

    Args:
        package: the name of the package of the messages.
        schema: messages and enums in the language of .proto files (proto3), without comments,
            options and nested definitions; the keys of maps are strings.

    Raises:
        ImportError: protobuf is not installed.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto3"
    )
    _Reader(package, file, descriptor_pb2.FieldDescriptorProto).read(schema)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]
    found = SimpleNamespace()
    for message in file.message_type:
        descriptor = pool.FindMessageTypeByName(f"{package}.{message.name}")
        setattr(found, message.name, message_factory.GetMessageClass(descriptor))
    return found


class _Reader:
    """Fills a FileDescriptorProto from the text of a schema."""

    def __init__(self, package: str, file: Any, field: Any) -> None:
        self._package = package
        self._file = file
        self._field = field
        self._enums: set[str] = set()
        self._tokens: Iterator[re.Match[str]] = iter(())

    def read(self, text: str) -> None:
        self._tokens = _TOKENS.finditer(text)
        while (kind := self._next(None)) is not None:
            name = self._next()
            self._next()  # {
            if kind == "enum":
                self._read_enum(name)
            else:
                self._read_fields(self._file.message_type.add(name=name), None)

    def _next(self, *default: None) -> Any:
        token = next(self._tokens, None)
        return default[0] if token is None else token[0]

    def _read_enum(self, name: str) -> None:
        self._enums.add(name)
        enum = self._file.enum_type.add(name=name)
        while (value := self._next()) != "}":
            _, number, _ = self._next(), self._next(), self._next()
            enum.value.add(name=value, number=int(number))

    def _read_fields(self, message: Any, oneof: int | None) -> None:
        """Reads fields up to the closing brace."""
        while (kind := self._next()) != "}":
            if kind == "oneof":
                message.oneof_decl.add(name=self._next())
                self._next()  # {
                self._read_fields(message, len(message.oneof_decl) - 1)
                continue
            repeated = kind == "repeated"
            kind = self._next() if repeated else kind
            name, _, number, _ = self._next(), self._next(), self._next(), self._next()
            if kind.startswith("map<"):
                kind, repeated = self._map_entry(message, name, kind[12:-1]), True
            field = self._add(message, name, int(number), kind, repeated=repeated)
            if oneof is not None:
                field.oneof_index = oneof

    def _map_entry(self, message: Any, name: str, kind: str) -> str:
        entry = message.nested_type.add(
            name="".join(part.title() for part in name.split("_")) + "Entry"
        )
        self._add(entry, "key", 1, "string", repeated=False)
        self._add(entry, "value", 2, kind, repeated=False)
        entry.options.map_entry = True
        return f"{message.name}.{entry.name}"

    def _add(self, message: Any, name: str, number: int, kind: str, *, repeated: bool) -> Any:
        field = message.field.add(name=name, number=number)
        field.label = self._field.LABEL_REPEATED if repeated else self._field.LABEL_OPTIONAL
        scalar = getattr(self._field, f"TYPE_{kind.upper()}", None)
        if scalar is not None:
            field.type = scalar
            return field
        field.type = self._field.TYPE_ENUM if kind in self._enums else self._field.TYPE_MESSAGE
        field.type_name = f".{self._package}.{kind}"
        return field


def tensor_proto(dtype: str, more: str = "") -> str:
    """The schema of TensorFlow's TensorProto, with the messages that it refers to.

    Args:
        dtype: the type of the field `dtype`: an enum, or int32.
        more: further fields.
    """
    return f"""
message Dim {{ int64 size = 1; string name = 2; }}
message TensorShapeProto {{ repeated Dim dim = 2; bool unknown_rank = 3; }}
message TensorProto {{
  {dtype} dtype = 1; TensorShapeProto tensor_shape = 2; int32 version_number = 3;
  bytes tensor_content = 4; repeated float float_val = 5; repeated double double_val = 6;
  repeated int32 int_val = 7; repeated bytes string_val = 8; repeated float scomplex_val = 9;
  repeated int64 int64_val = 10; repeated bool bool_val = 11; repeated double dcomplex_val = 12;
  repeated int32 half_val = 13; repeated uint32 uint32_val = 16; repeated uint64 uint64_val = 17;
  bytes float8_val = 18; {more}
}}"""
