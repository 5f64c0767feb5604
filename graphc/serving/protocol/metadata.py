"""Signatures and states of models, as messages and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from graphc.ir.types import TensorType
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import name_of, number_of

PREDICT: Final = "tensorflow/serving/predict"
METADATA_TYPE: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
STATES: Final = {
    "UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50,
}  # fmt: skip
# google.rpc.Code
CODES: Final = {
    "OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "UNIMPLEMENTED": 12,
    "INTERNAL": 13, "UNAVAILABLE": 14, "UNAUTHENTICATED": 16,
}  # fmt: skip


class Entry(Protocol):
    """The types of a signature; an EntryPoint has them."""

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]


def signature_message(entries: Mapping[str, Entry]) -> Any:
    """The SignatureDefMap of the signatures of a model."""
    found = messages().SignatureDefMap()
    for name, entry in entries.items():
        message = found.signature_def[name]
        message.method_name = PREDICT
        for types, infos in ((entry.inputs, message.inputs), (entry.outputs, message.outputs)):
            for key, type in types.items():
                infos[key].name = f"{key}:0"
                infos[key].dtype = number_of(type.dtype)
                infos[key].tensor_shape.SetInParent()
                for dim in type.shape:
                    infos[key].tensor_shape.dim.add(size=dim if isinstance(dim, int) else -1)
    return found


def signature_json(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """The same as JSON, in the form of TensorFlow Serving's `/metadata`."""
    return {
        name: {
            "inputs": {key: _info(key, type) for key, type in entry.inputs.items()},
            "outputs": {key: _info(key, type) for key, type in entry.outputs.items()},
            "method_name": PREDICT,
        }
        for name, entry in entries.items()
    }


def _info(name: str, type: TensorType) -> dict[str, Any]:
    sizes = [dim if isinstance(dim, int) else -1 for dim in type.shape]
    return {
        "dtype": name_of(type.dtype),
        "tensor_shape": {
            "dim": [{"size": str(size), "name": ""} for size in sizes],
            "unknown_rank": False,
        },
        "name": f"{name}:0",
    }


def status_message(versions: list[Any]) -> Any:
    """The GetModelStatusResponse of the states of versions."""
    found = messages().GetModelStatusResponse()
    for each in versions:
        status = found.model_version_status.add(version=each.version, state=STATES[each.state])
        status.status.error_code = code_number(each.error_code)
        status.status.error_message = each.error_message
    return found


def status_json(versions: list[Any]) -> dict[str, Any]:
    """The same as JSON. Versions are text there, because JavaScript has no 64-bit integers."""
    return {
        "model_version_status": [
            {
                "version": str(each.version),
                "state": each.state,
                "status": {
                    "error_code": each.error_code or "OK",
                    "error_message": each.error_message,
                },
            }
            for each in versions
        ]
    }


def code_number(code: str) -> int:
    """The number of a code; "" is OK."""
    return CODES[code or "OK"]
