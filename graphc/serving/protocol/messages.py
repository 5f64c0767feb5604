"""Protobuf message classes of the protocol, made when the first one is needed.

`messages().PredictRequest` is the class whose bytes are those of TensorFlow Serving's.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from graphc.errors import MissingExtraError
from graphc.serving.protocol.schema import SCHEMA
from graphc.store.proto_schema import message_classes
from graphc.web.failures import Failure


@lru_cache(maxsize=1)
def messages() -> SimpleNamespace:
    """The message classes, as attributes.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    try:
        return message_classes("graphc.serving", SCHEMA)
    except ImportError:
        raise MissingExtraError(
            "the model server needs protobuf, which is not installed",
            hint="pip install 'graphc[serve]'",
        ) from None


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
