"""`Client` and `AsyncClient`: arrays to a model server and back, over REST or gRPC."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from graphc.errors import AttributeValueError
from graphc.serving.failures import HTTP_STATUS, Failure
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.metadata import STATES
from graphc.serving.protocol.tensors import decode_all, encode

Array = np.ndarray[Any, Any]
_LIMIT = 1 << 40
_PROTOBUF = "application/x-protobuf"
_CODES = {status: code for code, status in reversed(list(HTTP_STATUS.items()))} | {
    408: "DEADLINE_EXCEEDED",
    405: "UNIMPLEMENTED",
}
_SERVICE = "/tensorflow.serving."


class Client:
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
        self._transport: _Rest | _Grpc
        if address.startswith(("http://", "https://")):
            self._transport = _Rest(address, token, tls)
        elif address.startswith(("grpc://", "grpcs://")):
            self._transport = _Grpc(address, token, authority)
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
        data = _request(model, {**(inputs or {}), **named}, version, label, signature, outputs)
        found = self._transport.predict(model, version, label, data, timeout or self._timeout)
        return decode_all(parse("PredictResponse", found).outputs, _LIMIT)

    def status(self, model: str) -> dict[int, str]:
        """The state of each version of a model: `{3: "AVAILABLE"}`.

        Raises:
            Failure: as for `predict`.
        """
        return self._transport.status(model, self._timeout)

    def close(self) -> None:
        """Closes the connections of this thread."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
        arrays = {**(inputs or {}), **named}
        call = partial(
            self._client.predict,
            version=version,
            label=label,
            signature=signature,
            outputs=outputs,
            timeout=timeout,
        )
        return await asyncio.to_thread(call, model, arrays)

    async def status(self, model: str) -> dict[int, str]:
        """See `Client.status`."""
        return await asyncio.to_thread(self._client.status, model)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()


def _request(
    model: str,
    inputs: Mapping[str, Any],
    version: int | None,
    label: str | None,
    signature: str,
    outputs: Sequence[str],
) -> bytes:
    """The bytes of a PredictRequest: PackedTensors are TensorProtos on the wire."""
    message = messages().PackedRequest(output_filter=list(outputs))
    spec = message.model_spec
    spec.name, spec.signature_name = model, signature
    if version is not None:
        spec.version.value = version
    if label is not None:
        spec.version_label = label
    for name, value in inputs.items():
        encode(np.asarray(value), message.inputs[name])
    data: bytes = message.SerializeToString()
    return data


class _Rest:
    """HTTP/1.1 with one connection for each thread."""

    def __init__(self, address: str, token: str | None, tls: ssl.SSLContext | None) -> None:
        self._address = urlsplit(address)
        self._tls = tls
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []

    def predict(
        self, model: str, version: int | None, label: str | None, data: bytes, timeout: float
    ) -> bytes:
        path = _path(model)
        if version is not None:
            path += f"/versions/{version}"
        if label is not None:
            path += f"/labels/{quote(label, safe='')}"
        return self._call("POST", f"{path}:predict", timeout, data)

    def status(self, model: str, timeout: float) -> dict[int, str]:
        found = json.loads(self._call("GET", _path(model), timeout))
        return {int(row["version"]): row["state"] for row in found["model_version_status"]}

    def close(self) -> None:
        while self._open:
            self._open.pop().close()
        self._local = threading.local()

    def _call(self, method: str, path: str, timeout: float, data: bytes | None = None) -> bytes:
        headers = self._headers | ({} if data is None else {"content-type": _PROTOBUF})
        try:
            status, body = self._exchange(method, path, timeout, data, headers)
        except TimeoutError:
            self._drop()
            raise Failure("DEADLINE_EXCEEDED", f"no answer within {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise Failure("UNAVAILABLE", f"{self._address.netloc}: {error!r}") from error
        if status == 200:
            return body
        raise Failure(_CODES.get(status, "INTERNAL"), _message(body))

    def _exchange(
        self, method: str, path: str, timeout: float, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection, used = self._connection(timeout)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not used:
                raise
            self._drop()  # the server closed it while it was idle: once more on a new one
            connection, _ = self._connection(timeout)
            connection.request(method, path, data, headers)
            response = connection.getresponse()
        return response.status, response.read()

    def _connection(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """The connection of this thread, and whether it has been used."""
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is not None:
            if found.sock is not None:
                found.sock.settimeout(timeout)
            return found, True
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            found = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        else:
            found = http.client.HTTPConnection(host, port, timeout=timeout)
        self._local.connection = found
        self._open.append(found)
        return found, False

    def _drop(self) -> None:
        found = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
            self._open.remove(found)
            del self._local.connection


class _Grpc:
    """A channel, which all threads share."""

    def __init__(self, address: str, token: str | None, authority: str | None) -> None:
        import grpc

        found = urlsplit(address)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if found.scheme == "grpcs":
            credentials = grpc.ssl_channel_credentials(_read(authority))
            self._channel = grpc.secure_channel(found.netloc, credentials, options)
        else:
            self._channel = grpc.insecure_channel(found.netloc, options)
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def predict(
        self, model: str, version: int | None, label: str | None, data: bytes, timeout: float
    ) -> bytes:
        return self._call("PredictionService/Predict", data, timeout)

    def status(self, model: str, timeout: float) -> dict[int, str]:
        request = messages().GetModelStatusRequest()
        request.model_spec.name = model
        data = self._call("ModelService/GetModelStatus", request.SerializeToString(), timeout)
        names = {number: name for name, number in STATES.items()}
        found = parse("GetModelStatusResponse", data).model_version_status
        return {row.version: names.get(row.state, "UNKNOWN") for row in found}

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, data: bytes, timeout: float) -> bytes:
        import grpc

        call = self._channel.unary_unary(f"{_SERVICE}{method}")
        try:
            found: bytes = call(data, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code = error.code().name
            known = code if code in HTTP_STATUS else "INTERNAL"
            raise Failure(known, error.details() or code) from None
        return found


def _path(model: str) -> str:
    return f"/v1/models/{quote(model, safe='')}"


def _message(body: bytes) -> str:
    """The text of an error."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
