"""Protobuf message classes of the protocol, made when the first one is needed.

`messages().PredictRequest` is the class whose bytes are those of TensorFlow Serving's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from graphc.errors import MissingExtraError
from graphc.serving.protocol.schema import SCHEMA
from graphc.web.failures import Failure

PACKAGE = "graphc.serving"
_TOKENS = re.compile(r"map<string, (\w+)>|\w+|[{};=]")


@lru_cache(maxsize=1)
def messages() -> SimpleNamespace:
    """The message classes, as attributes.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MissingExtraError(
            "the model server needs protobuf, which is not installed",
            hint="pip install 'graphc[serve]'",
        ) from None
    file = descriptor_pb2.FileDescriptorProto(
        name="graphc/serving.proto", package=PACKAGE, syntax="proto3"
    )
    _Reader(file, descriptor_pb2.FieldDescriptorProto).read(SCHEMA)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]
    found = SimpleNamespace()
    for message in file.message_type:
        descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}")
        setattr(found, message.name, message_factory.GetMessageClass(descriptor))
    return found


def parse(name: str, data: bytes) -> Any:
    """The message of class `name` with these bytes.

    Raises:
        Failure: INVALID_ARGUMENT: the bytes are not such a message.
    """
    from google.protobuf.message import DecodeError

    try:
        return getattr(messages(), name).FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Failure("INVALID_ARGUMENT", f"the body is not a {name}: {str(error)[:200]}") from None


class _Reader:
    """Fills a FileDescriptorProto from the text of a schema."""

    def __init__(self, file: Any, field: Any) -> None:
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
        field.type_name = f".{PACKAGE}.{kind}"
        return field
