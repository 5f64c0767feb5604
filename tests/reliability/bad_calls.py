"""Malformed gRPC calls, each with its correct status codes."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Any, Final

import grpc
import numpy as np

from graphc.serving.protocol.messages import messages
from tests.reliability.bad_requests import LIMIT, flipped
from tests.reliability.model_server import Child, grpc_request

PREDICT: Final = "tensorflow.serving.PredictionService/Predict"
MISTAKES: Final = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED")
METHODS: Final = {
    "PredictionService/Predict": "PredictRequest",
    "PredictionService/Classify": "ClassificationRequest",
    "PredictionService/Regress": "RegressionRequest",
    "PredictionService/MultiInference": "MultiInferenceRequest",
    "PredictionService/GetModelMetadata": "GetModelMetadataRequest",
    "ModelService/GetModelStatus": "GetModelStatusRequest",
}
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Caller:
    """Sends malformed calls to a server.

    Args:
        child: the server.
        random: the source of random numbers.
    """

    def __init__(self, child: Child, random: random.Random) -> None:
        self._port = child.grpc_port
        self._random = random
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self._port}", options)
        self._good = grpc_request()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def valid(self) -> bytes:
        """The answer to a valid request."""
        found: bytes = self._channel.unary_unary(f"/{PREDICT}")(self._good, timeout=60)
        return found

    def attack(self) -> tuple[str, str, bool]:
        """Makes a random call: returns its kind, the code, and whether the code is correct."""
        kinds = [kind for _, kind in KINDS]
        (kind,) = self._random.choices(kinds, [weight for weight, _ in KINDS])
        code, allowed = kind(self)
        return f"gRPC {kind.__name__}", code, code in allowed

    def _code(self, method: str, data: bytes, **options: Any) -> str:
        call = self._channel.unary_unary(f"/{method}")
        try:
            call(data, **{"timeout": 60, **options})
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def _predict(self, change: Callable[[Any], None]) -> str:
        request = messages().PredictRequest.FromString(self._good)
        change(request)
        return self._code(PREDICT, request.SerializeToString())

    # -- kinds ----------------------------------------------------------------------------------

    def flipped_bits(self) -> tuple[str, tuple[str, ...]]:
        name, message = self._random.choice(list(METHODS.items()))
        request = getattr(messages(), message)()
        if message == "PredictRequest":
            request = messages().PredictRequest.FromString(self._good)
        elif message == "MultiInferenceRequest":
            task = request.tasks.add(method_name="tensorflow/serving/regress")
            task.model_spec.name = "m"
            task.model_spec.signature_name = "value"
        else:
            request.model_spec.name = "m"
        if "metadata_field" in request.DESCRIPTOR.fields_by_name:
            request.metadata_field.append("signature_def")
        if "input" in request.DESCRIPTOR.fields_by_name:
            feature = b"\n\x10\n\x0e\n\x03age\x12\x07\x12\x05\n\x03\x00\x00\x80"
            request.input.example_list.examples.append(feature)
        data = flipped(self._random, request.SerializeToString())
        return self._code(f"tensorflow.serving.{name}", data), ("OK", *MISTAKES)

    def random_bytes(self) -> tuple[str, tuple[str, ...]]:
        data = self._random.randbytes(self._random.randrange(1, 300))
        name = self._random.choice(list(METHODS))
        return self._code(f"tensorflow.serving.{name}", data), MISTAKES

    def content(self) -> tuple[str, tuple[str, ...]]:
        def change(request: Any) -> None:
            x = request.inputs["x"]
            x.ClearField("float_val")
            x.tensor_content = self._random.randbytes(self._random.choice([1, 31, 95, 97, 4000]))

        return self._predict(change), ("INVALID_ARGUMENT",)

    def sizes(self) -> tuple[str, tuple[str, ...]]:
        def change(request: Any) -> None:
            dims = request.inputs["x"].tensor_shape.dim
            kind = self._random.randrange(3)
            if kind == 0:
                dims[0].size = self._random.choice([-1, -(2**63), 2**31, 2**62, 2**63 - 1, 0])
            elif kind == 1:
                for _ in range(self._random.choice([1, 30, 31, 500])):
                    dims.add(size=1)
            else:
                request.inputs["x"].tensor_shape.unknown_rank = True

        return self._predict(change), ("INVALID_ARGUMENT",)

    def dtypes(self) -> tuple[str, tuple[str, ...]]:
        def change(request: Any) -> None:
            wrong = self._random.choice([0, 2, 3, 7, 8, 19, 21, 31, 99, 101, 2**31 - 1, -5])
            request.inputs["x"].dtype = wrong

        return self._predict(change), ("INVALID_ARGUMENT",)

    def names(self) -> tuple[str, tuple[str, ...]]:
        long = "é" * self._random.choice([3, 200, 9_000, 100_000])

        def change(request: Any) -> None:
            kind = self._random.randrange(5)
            if kind == 0:
                request.model_spec.name = long
            elif kind == 1:
                request.model_spec.signature_name = long
            elif kind == 2:
                request.inputs[long].CopyFrom(request.inputs["x"])
            elif kind == 3:
                request.output_filter.append(long)
            else:
                request.model_spec.version.value = self._random.choice([2, -1, 2**63 - 1])

        return self._predict(change), ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")

    def unknown_methods(self) -> tuple[str, tuple[str, ...]]:
        name = self._random.choice(["tensorflow.serving.PredictionService/No", "a.B/C", "x/y/z"])
        return self._code(name, self._good), ("UNIMPLEMENTED",)

    def cancelled(self) -> tuple[str, tuple[str, ...]]:
        call = self._channel.unary_unary(f"/{PREDICT}").future(self._good, timeout=60)
        if self._random.random() < 0.5:
            call.add_done_callback(lambda _: None)
        call.cancel()
        return "CANCELLED" if call.cancelled() else call.code().name, ("CANCELLED", "OK")

    def short_deadlines(self) -> tuple[str, tuple[str, ...]]:
        code = self._code(PREDICT, self._good, timeout=self._random.choice([0.0, 0.0005, 0.001]))
        return code, ("OK", "DEADLINE_EXCEEDED")

    def too_large(self) -> tuple[str, tuple[str, ...]]:
        return self._code(PREDICT, bytes(LIMIT + 1)), ("RESOURCE_EXHAUSTED",)

    def bombs(self) -> tuple[str, tuple[str, ...]]:
        request = messages().PredictRequest()
        request.model_spec.name = "m"
        request.inputs["x"].tensor_content = bytes(20 * LIMIT)
        code = self._code(PREDICT, request.SerializeToString(), compression=grpc.Compression.Gzip)
        return code, ("RESOURCE_EXHAUSTED",)

    def foreign_folders(self) -> tuple[str, tuple[str, ...]]:
        request = messages().ReloadConfigRequest()
        config = request.config.model_config_list.config.add(name="m")
        config.base_path = self._random.choice(
            ["/etc", "/", "", "a\0b", "/tmp/../etc", "x" * 9_000]
        )
        if self._random.random() < 0.3:
            config.traffic["9" * 5_000] = 100
        data = request.SerializeToString()
        return self._code("tensorflow.serving.ModelService/HandleReloadConfigRequest", data), (
            "INVALID_ARGUMENT",
        )

    def raw_bytes(self) -> tuple[str, tuple[str, ...]]:
        """Bytes that are not HTTP/2, or random frames; the server must close the connection."""
        data = self._random.randbytes(self._random.randrange(1, 400))
        if self._random.random() < 0.7:
            data = PREFACE + b"\0\0\0\x04\0\0\0\0\0" + data
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            except TimeoutError:
                return "HANG", ("closed",)
            except OSError:
                pass
        return "closed", ("closed",)


KINDS: Final = (
    (12, Caller.flipped_bits), (4, Caller.random_bytes), (4, Caller.content), (4, Caller.sizes),
    (4, Caller.dtypes), (3, Caller.names), (2, Caller.unknown_methods), (3, Caller.cancelled),
    (3, Caller.short_deadlines), (0.5, Caller.too_large), (0.2, Caller.bombs),
    (1, Caller.foreign_folders), (2, Caller.raw_bytes),
)  # fmt: skip
"""How often each kind comes."""


def scores_are(data: bytes, expected: np.ndarray) -> bool:
    """Whether the answer to a valid request has exactly these scores."""
    from tests.reliability.model_server import scores_of_message

    return bool(np.array_equal(scores_of_message(data)[1], expected))
