"""Protobuf messages that divide an `Example` or a `SequenceExample` into its features.

They read the same bytes as TensorFlow's messages, but leave each feature as bytes: making a Python
object of each number would take most of the time. The pool of descriptors is our own, so
TensorFlow in the same process is not disturbed. In an entry of a map with two values, which no
writer makes, the last one counts; protobuf would merge them.

    Example          1: Features features
    SequenceExample  1: Features context   2: FeatureLists feature_lists
    Features         1: map<string, Feature> named
    FeatureLists     1: map<string, FeatureList> named
    FeatureList      1: repeated Feature feature
    Feature          1: BytesList   2: FloatList   3: Int64List  (one of them; see wire.py)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from graphc.ir.extras import importing

_PACKAGE = "graphc.records"


class Messages(NamedTuple):
    """Functions from bytes to messages.

    Attributes:
        example: reads an Example.
        sequence_example: reads a SequenceExample.
        errors: what they raise for bytes that are no such message.
    """

    example: Callable[[bytes], Any]
    sequence_example: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]


def import_messages(name: str) -> Messages:
    """The messages.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    with importing(f"{name} needs protobuf, which is not installed", "records"):
        return _messages()


@lru_cache(maxsize=1)
def _messages() -> Messages:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="graphc/records.proto",
        package=_PACKAGE,
        syntax="proto2",  # proto3 refuses names that are not UTF-8
    )

    def message(parent: Any, name: str, *fields: tuple[str, str, bool]) -> Any:
        made = parent.add(name=name)
        for number, (each, kind, repeated) in enumerate(fields, 1):
            scalar = field.TYPE_STRING if kind == "string" else field.TYPE_BYTES
            made.field.add(
                name=each,
                number=number,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
                type=scalar if kind in ("string", "bytes") else field.TYPE_MESSAGE,
                type_name=None if kind in ("string", "bytes") else f".{_PACKAGE}.{kind}",
            )
        return made

    def with_map(name: str, of: str) -> None:
        made = message(file.message_type, name, ("named", f"{name}.NamedEntry", True))
        pair = (("key", "string", False), ("value", of, False))
        message(made.nested_type, "NamedEntry", *pair).options.map_entry = True

    top = file.message_type
    with_map("Features", "bytes")
    message(top, "FeatureList", ("feature", "bytes", True))
    with_map("FeatureLists", "FeatureList")
    message(top, "Example", ("features", "Features", False))
    lists = ("lists", "FeatureLists", False)
    message(top, "SequenceExample", ("features", "Features", False), lists)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]

    def reader(name: str) -> Callable[[bytes], Any]:
        found = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        read: Callable[[bytes], Any] = message_factory.GetMessageClass(found).FromString
        return read

    # protobuf without its C part refuses names that are not UTF-8
    errors = DecodeError, UnicodeDecodeError
    return Messages(reader("Example"), reader("SequenceExample"), errors)
