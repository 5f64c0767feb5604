"""The gRPC endpoint: PredictionService and ModelService of TensorFlow Serving, and grpc.health."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

from graphc.errors import GraphcError
from graphc.serving.config import ServerConfig
from graphc.serving.endpoints.grpc_calls import GrpcCalls, Method, target_of
from graphc.serving.endpoints.grpc_sessions import GrpcSessions
from graphc.serving.endpoints.service import Answer, Call, Service, Target
from graphc.serving.endpoints.threads import in_thread_if, is_large
from graphc.serving.protocol.checks import Types
from graphc.serving.protocol.config_text import models_of
from graphc.serving.protocol.examples import read_input
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.metadata import METADATA_TYPE, signature_message, status_message
from graphc.serving.protocol.responses import fill_classes, fill_spec, fill_values, packed_response
from graphc.serving.protocol.results import CLASSIFY, REGRESS, classes_of, values_of
from graphc.serving.protocol.tensors import decode_all
from graphc.web.access import Access
from graphc.web.failures import Failure

_SERVING: Final = 1
_NOT_SERVING: Final = 2


Fill = Callable[[Any, Answer, int], None]  # (result, answer, number of examples)


class GrpcServices:
    """The methods of the services.

    Args:
        service: answers the requests.
        access: who may send them.
        ready: whether the server takes requests, for grpc.health.
    """

    def __init__(
        self, service: Service, access: Access, ready: Callable[[], bool] = lambda: True
    ) -> None:
        self._service = service
        self._access = access
        self._ready = ready
        self._reloading = asyncio.Lock()

    def handlers(self) -> tuple[Any, ...]:
        """The generic handlers for `grpc.aio.Server.add_generic_rpc_handlers`."""
        import grpc

        services: dict[str, dict[str, Method]] = {
            "tensorflow.serving.PredictionService": {
                "Predict": self.predict,
                "Classify": self.classify,
                "Regress": self.regress,
                "MultiInference": self.multi_inference,
                "GetModelMetadata": self.metadata,
            },
            "tensorflow.serving.ModelService": {
                "GetModelStatus": self.status,
                "HandleReloadConfigRequest": self.reload,
            },
        }
        check = grpc.stream_unary_rpc_method_handler(self.check)
        health = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})
        called = GrpcCalls(self._service, self._access)
        sessions = GrpcSessions(self._service, called).handler()
        return (
            health,
            sessions,
            *(
                grpc.method_handlers_generic_handler(
                    service, {name: called.unary(name, method) for name, method in methods.items()}
                )
                for service, methods in services.items()
            ),
        )

    async def predict(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """PredictRequest -> PredictResponse."""
        request = parse("PredictRequest", data)

        def read(types: Types) -> Any:
            return decode_all(request.inputs)

        target = target_of(request.model_spec)
        answer = await self._service.infer(call, target, read, deadline=deadline)
        filter = list(request.output_filter)
        found: bytes = await in_thread_if(
            is_large(answer.outputs), packed_response, target.name, answer, filter
        )
        return found

    async def classify(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """ClassificationRequest -> ClassificationResponse."""
        return await self._filled(call, data, deadline, "Classification", _classify)

    async def regress(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """RegressionRequest -> RegressionResponse."""
        return await self._filled(call, data, deadline, "Regression", _regress)

    async def _filled(
        self, call: Call, data: bytes, deadline: float | None, kind: str, fill: Fill
    ) -> bytes:
        """The response to a request with examples; `fill` writes its result."""
        request = parse(f"{kind}Request", data)
        target = target_of(request.model_spec)
        answer, count = await self._on_examples(call, target, request.input, deadline)
        response = getattr(messages(), f"{kind}Response")()
        fill_spec(response.model_spec, target.name, answer)
        fill(response.result, answer, count)
        return _bytes(response)

    async def multi_inference(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """MultiInferenceRequest -> MultiInferenceResponse."""
        request = parse("MultiInferenceRequest", data)
        if not request.tasks:
            raise Failure("INVALID_ARGUMENT", "the request has no tasks")
        if len({task.model_spec.name for task in request.tasks}) > 1:
            raise Failure("INVALID_ARGUMENT", "all tasks must name the same model")
        response = messages().MultiInferenceResponse()
        for number, task in enumerate(request.tasks):
            if task.method_name not in (CLASSIFY, REGRESS):
                raise Failure(
                    "UNIMPLEMENTED",
                    f"tasks[{number}]: method_name must be {CLASSIFY} or {REGRESS}, got "
                    f"{task.method_name!r:.80}",
                )
            target = target_of(task.model_spec)
            answer, count = await self._on_examples(call, target, request.input, deadline)
            result = response.results.add()
            fill_spec(result.model_spec, target.name, answer)
            if task.method_name == CLASSIFY:
                _classify(result.classification_result, answer, count)
            else:
                _regress(result.regression_result, answer, count)
        return _bytes(response)

    async def _on_examples(
        self, call: Call, target: Target, input: Any, deadline: float | None
    ) -> tuple[Answer, int]:
        """The answer, and the number of examples."""
        kind = input.WhichOneof("kind")
        count = len(getattr(input, kind).examples) if kind else 0

        def read(types: Types) -> Any:
            return read_input(input, types)

        return await self._service.infer(call, target, read, deadline=deadline), count

    async def metadata(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """GetModelMetadataRequest -> GetModelMetadataResponse."""
        request = parse("GetModelMetadataRequest", data)
        target = target_of(request.model_spec)
        call.model = target.name
        if not request.metadata_field:
            raise Failure("INVALID_ARGUMENT", "metadata_field must name at least one field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise Failure("INVALID_ARGUMENT", f"no metadata field {field!r:.80}")
        response = messages().GetModelMetadataResponse()
        with self._service.manager.use(target.name, target.version, target.label) as servable:
            call.version = servable.version
            signatures = signature_message(servable.signatures)
        response.model_spec.name = target.name
        response.model_spec.version.value = call.version
        packed = response.metadata["signature_def"]
        packed.type_url, packed.value = METADATA_TYPE, signatures.SerializeToString()
        return _bytes(response)

    async def status(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """GetModelStatusRequest -> GetModelStatusResponse."""
        target = target_of(parse("GetModelStatusRequest", data).model_spec)
        call.model = target.name
        version = target.version
        if target.label is not None:
            with self._service.manager.use(target.name, label=target.label) as servable:
                version = servable.version
        return _bytes(status_message(self._service.manager.status(target.name, version)))

    async def reload(self, call: Call, data: bytes, deadline: float | None) -> bytes:
        """ReloadConfigRequest -> ReloadConfigResponse, after the new versions are available."""
        request = parse("ReloadConfigRequest", data)
        if not request.config.HasField("model_config_list"):
            raise Failure("INVALID_ARGUMENT", "config must have a model_config_list")
        try:
            configs = models_of(request.config.model_config_list)
        except GraphcError as error:
            raise Failure("INVALID_ARGUMENT", error.what) from None
        for config in configs:
            if not _inside(config.base_path, self._service.roots):
                raise Failure(
                    "INVALID_ARGUMENT",
                    f"model {config.name!r}: base_path is outside the folders of the models that "
                    "the server was started with",
                )
        async with self._reloading:  # a thread for one of them, however many are sent
            await asyncio.to_thread(self._service.manager.reload, configs)
        response = messages().ReloadConfigResponse()
        response.status.SetInParent()
        return _bytes(response)

    async def check(self, requests: Any, context: Any) -> bytes:
        """grpc.health.v1: SERVING or NOT_SERVING. Needs no token, and is not counted. The message
        is not read, so that it takes no memory."""
        state = _SERVING if self._ready() else _NOT_SERVING
        return _bytes(messages().HealthCheckResponse(status=state))


def _classify(result: Any, answer: Answer, count: int) -> None:
    fill_classes(result, classes_of(answer.outputs, count))


def _regress(result: Any, answer: Answer, count: int) -> None:
    fill_values(result, values_of(answer.outputs, count))


def options_of(config: ServerConfig) -> list[tuple[str, int]]:
    """The options of grpc's server."""
    return [
        ("grpc.max_receive_message_length", config.max_body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", config.max_concurrent),  # of one connection
        ("grpc.so_reuseport", 0),  # a port in use is an error
        # grpc would widen the window of fast connections to megabytes: so much of each message
        # could arrive before its handler asks for it. A message that is asked for has a window of
        # its size in any case.
        ("grpc.http2.bdp_probe", 0),
    ]


def _inside(path: str, roots: tuple[str, ...]) -> bool:
    """Whether the path, with links followed, is one of the roots or below one."""
    real = os.path.realpath(path)
    return any(os.path.commonpath([real, root]) == root for root in roots)


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
