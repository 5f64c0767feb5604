"""`graphc.serving.SessionService`: sessions by gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from graphc.serving.endpoints.grpc_calls import GrpcCalls, target_of
from graphc.serving.endpoints.service import Call, Service
from graphc.serving.endpoints.sessions import Asked, Key, SessionCalls
from graphc.serving.endpoints.threads import in_thread_if, is_large
from graphc.serving.models.sessions import Owner
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.session_requests import from_message

SERVICE = "graphc.serving.SessionService"


class GrpcSessions:
    """The methods of the service.

    Args:
        service: the limits, the metrics and the models.
        called: makes the handlers.
    """

    def __init__(self, service: Service, called: GrpcCalls) -> None:
        self._calls = SessionCalls(service)
        self._called = called

    def handler(self) -> Any:
        """The generic handler for `grpc.aio.Server.add_generic_rpc_handlers`."""
        import grpc

        called = self._called
        methods = {
            "Create": called.owned("CreateSession", self.create),
            "Predict": called.owned("SessionPredict", self.predict),
            "Generate": called.stream("SessionGenerate", self.generate),
            "Close": called.owned("CloseSession", self.close),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def create(self, call: Call, data: bytes, deadline: float | None, owner: Owner) -> bytes:
        """CreateSessionRequest -> CreateSessionResponse."""
        request = parse("CreateSessionRequest", data)
        seed = request.seed if request.WhichOneof("start") else None
        session = self._calls.create(call, target_of(request.model_spec), owner, seed)
        config = self._calls.config
        response = messages().CreateSessionResponse(
            session_id=session.id, idle_seconds=config.idle_seconds, max_seconds=config.max_seconds
        )
        spec = response.model_spec
        spec.name, spec.signature_name = session.servable.name, session.signature
        spec.version.value = session.servable.version
        found: bytes = response.SerializeToString()
        return found

    async def predict(self, call: Call, data: bytes, deadline: float | None, owner: Owner) -> bytes:
        """SessionRequest -> PredictResponse."""
        request = from_message(data)
        asked = Asked(call, Key(request.model, request.id, owner), request, deadline)
        answer = await self._calls.predict(asked)
        found: bytes = await in_thread_if(is_large(answer.outputs), request.write, answer)
        return found

    async def generate(
        self, call: Call, data: bytes, deadline: float | None, owner: Owner
    ) -> AsyncIterator[bytes]:
        """SessionRequest -> a PredictResponse for each step."""
        request = from_message(data)
        asked = Asked(call, Key(request.model, request.id, owner), request, deadline)
        async with aclosing(self._calls.generate(asked)) as answers:
            async for answer, _ in answers:
                yield await in_thread_if(is_large(answer.outputs), request.write, answer)

    async def close(self, call: Call, data: bytes, deadline: float | None, owner: Owner) -> bytes:
        """CloseSessionRequest -> CloseSessionResponse."""
        spec = parse("CloseSessionRequest", data).session
        self._calls.close(call, Key(spec.model, spec.session_id, owner))
        found: bytes = messages().CloseSessionResponse().SerializeToString()
        return found
