"""`Client` and `AsyncClient`: arrays to a model server and back, over REST or gRPC."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from graphc.closing import Closing
from graphc.errors import AttributeValueError
from graphc.ir.dtypes import Array
from graphc.serving.client_sessions import AsyncModelSession, ModelSession
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode_all, encode
from graphc.serving.transports import Grpc, ModelChoice, Rest, Transport

_LIMIT = 1 << 40


class Client(Closing):
    """Calls the models of a server. Threads may share a client.

    Args:
        address: `http://host:8501` or `https://...` for REST, `grpc://host:8500` or `grpcs://...`
            for gRPC.
        token: a bearer token, if the server asks for one.
        timeout: seconds that a call may take.
        tls: for https; by default the certificates of the system.
        authority: a PEM file with the certificate of the server's authority, for grpcs.

    Raises:
        AttributeValueError: the address is none of these.

    Examples:
        >>> client = gc.serving.Client("http://localhost:8501")
        >>> client.predict("digits", x=images)  # doctest: +SKIP
        {'probabilities': array([[...]], dtype=float32)}
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
        authority: str | None = None,
    ) -> None:
        self._timeout = timeout
        self._transport: Transport
        if address.startswith(("http://", "https://")):
            self._transport = Rest(address, token, tls)
        elif address.startswith(("grpc://", "grpcs://")):
            self._transport = Grpc(address, token, authority)
        else:
            raise AttributeValueError(
                f"Client: the address must begin with http, https, grpc or grpcs, got {address!r}",
                hint="http://localhost:8501 or grpc://localhost:8500",
            )

    def predict(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike] | None = None,
        /,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        outputs: Sequence[str] = (),
        timeout: float | None = None,
        **named: ArrayLike,
    ) -> dict[str, Array]:
        """The outputs of a signature.

        Args:
            model: its name.
            inputs: name -> array; or write `x=array`. The dtypes must be those of the signature.
            version, label: which version; by default the server chooses.
            signature: by default the model's default signature.
            outputs: only these outputs; by default all.
            timeout: instead of the client's.

        Raises:
            Failure: the server's error: `code` and `message`; UNAVAILABLE if there is no server.
        """
        choice = ModelChoice(model, version, label, signature)
        data = _request(choice, {**(inputs or {}), **named}, outputs)
        found = self._transport.predict(choice, data, timeout or self._timeout)
        return decode_all(parse("PredictResponse", found).outputs, _LIMIT)

    def session(
        self,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        seed: int | None = None,
    ) -> ModelSession:
        """A session: variables of its own on the server, for signatures that update variables.

        Args:
            version, label: which version; by default the server chooses.
            signature: of calls that name none; by default the only one that assigns variables.
            seed: of the random numbers; by default the stream goes on that was saved.

        Raises:
            Failure: the server's error; RESOURCE_EXHAUSTED if there are too many sessions.
        """
        choice = ModelChoice(model, version, label, signature)
        opened = self._transport.open_session(choice, seed, self._timeout)
        return ModelSession(self._transport, model, opened, self._timeout)

    def status(self, model: str) -> dict[int, str]:
        """The state of each version of a model: `{3: "AVAILABLE"}`.

        Raises:
            Failure: as for `predict`.
        """
        return self._transport.status(model, self._timeout)

    def close(self) -> None:
        """Closes the connections of this thread."""
        self._transport.close()


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited. Calls run in threads.

    Args:
        address, token, timeout, tls, authority: as for `Client`.

    Examples:
        >>> async def ask(images):
        ...     async with gc.serving.AsyncClient("grpc://localhost:8500") as client:
        ...         return await client.predict("digits", x=images)
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
        authority: str | None = None,
    ) -> None:
        self._client = Client(address, token=token, timeout=timeout, tls=tls, authority=authority)

    async def predict(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike] | None = None,
        /,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        outputs: Sequence[str] = (),
        timeout: float | None = None,
        **named: ArrayLike,
    ) -> dict[str, Array]:
        """See `Client.predict`."""
        return await asyncio.to_thread(
            self._client.predict,
            model,
            {**(inputs or {}), **named},
            version=version,
            label=label,
            signature=signature,
            outputs=outputs,
            timeout=timeout,
        )

    async def session(
        self,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        seed: int | None = None,
    ) -> AsyncModelSession:
        """See `Client.session`."""
        session = await asyncio.to_thread(
            self._client.session,
            model,
            version=version,
            label=label,
            signature=signature,
            seed=seed,
        )
        return AsyncModelSession(session)

    async def status(self, model: str) -> dict[int, str]:
        """See `Client.status`."""
        return await asyncio.to_thread(self._client.status, model)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._client.close()


def _request(choice: ModelChoice, inputs: Mapping[str, Any], outputs: Sequence[str]) -> bytes:
    """The bytes of a PredictRequest: PackedTensors are TensorProtos on the wire."""
    message = messages().PackedRequest(output_filter=list(outputs))
    choice.fill(message.model_spec)
    for name, value in inputs.items():
        encode(np.asarray(value), message.inputs[name])
    data: bytes = message.SerializeToString()
    return data
