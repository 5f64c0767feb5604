"""How clients reach a server: HTTP or gRPC, with errors as Failures."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.metadata import STATES
from graphc.serving.protocol.session_requests import seed_of
from graphc.serving.streams import Answers, Events, Stream, failure_of_call, failure_of_response
from graphc.serving.time_limits import End, send
from graphc.web.failures import Failure

_PROTOBUF = "application/x-protobuf"
_SERVICE = "/tensorflow.serving."
_SESSIONS = "/graphc.serving.SessionService/"
_ENDED = (
    http.client.RemoteDisconnected,
    BrokenPipeError,
    ConnectionResetError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)
# gRPC repeats other requests only if the server has not seen them.
_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "graphc.serving.SessionService", "method": "Predict"}],
            "retryPolicy": {
                "maxAttempts": 2,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


class Opened(NamedTuple):
    """A session of the server."""

    id: str
    version: int


class ModelChoice(NamedTuple):
    """A model, and which version and signature of it; the server chooses what is left out."""

    model: str
    version: int | None
    label: str | None
    signature: str

    def fill(self, spec: Any) -> None:
        """Fills a ModelSpec."""
        spec.name, spec.signature_name = self.model, self.signature
        if self.version is not None:
            spec.version.value = self.version
        if self.label is not None:
            spec.version_label = self.label

    @property
    def path(self) -> str:
        """The path of the version in URLs."""
        path = _path(self.model)
        if self.version is not None:
            path += f"/versions/{self.version}"
        if self.label is not None:
            path += f"/labels/{quote(self.label, safe='')}"
        return path


class Transport(Protocol):
    """What a client needs. Each method raises the server's error as a Failure."""

    def predict(self, choice: ModelChoice, data: bytes, timeout: float) -> bytes:
        """The answer to a PredictRequest."""

    def status(self, model: str, timeout: float) -> dict[int, str]:
        """The state of each version."""

    def open_session(self, choice: ModelChoice, seed: int | None, timeout: float) -> Opened:
        """A new session."""

    def step(self, model: str, session: str, data: bytes, timeout: float) -> bytes:
        """The answer to a SessionRequest for one step."""

    def stream(self, model: str, session: str, data: bytes, timeout: float | None) -> Stream:
        """The answers to a SessionRequest for several steps."""

    def close_session(self, model: str, session: str, timeout: float) -> None:
        """Ends a session."""

    def close(self) -> None:
        """Closes the connections."""


class Rest:
    """HTTP/1.1 with one connection for each thread, and one for each stream."""

    def __init__(self, address: str, token: str | None, tls: ssl.SSLContext | None) -> None:
        self._address = urlsplit(address)
        self._tls = tls
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._typed = self._headers | {"content-type": _PROTOBUF}
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []

    def predict(self, choice: ModelChoice, data: bytes, timeout: float) -> bytes:
        return self.call("POST", f"{choice.path}:predict", timeout, data)

    def status(self, model: str, timeout: float) -> dict[int, str]:
        found = json.loads(self.call("GET", _path(model), timeout))
        return {int(row["version"]): row["state"] for row in found["model_version_status"]}

    def open_session(self, choice: ModelChoice, seed: int | None, timeout: float) -> Opened:
        body = {"signature_name": choice.signature} | ({} if seed is None else {"seed": seed})
        data = json.dumps(body).encode()
        found = json.loads(self.call("POST", f"{choice.path}/sessions", timeout, data))
        return Opened(found["session_id"], int(found["version"]))

    def step(self, model: str, session: str, data: bytes, timeout: float) -> bytes:
        return self.call("POST", f"{_path(model)}/sessions/{session}:predict", timeout, data)

    def stream(self, model: str, session: str, data: bytes, timeout: float | None) -> Stream:
        path = f"{_path(model)}/sessions/{session}:generate"
        return Events(self._new(), path, data, self._typed, timeout)

    def close_session(self, model: str, session: str, timeout: float) -> None:
        self.call("DELETE", f"{_path(model)}/sessions/{session}", timeout)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()
        self._local = threading.local()

    def call(self, method: str, path: str, timeout: float, data: bytes | None = None) -> bytes:
        """The body of a response. If the connection ends before it, the request is sent once more:
        servers and proxies close connections that were idle.

        Args:
            timeout: seconds for the whole call.
        """
        headers = self._headers if data is None else self._typed
        end = End(timeout)
        try:
            status, body = self._exchange(method, path, end, data, headers)
        except TimeoutError:
            self._drop()
            raise Failure("DEADLINE_EXCEEDED", f"no answer within {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise Failure("UNAVAILABLE", f"{self._address.netloc}: {error!r}") from error
        except BaseException:  # Ctrl-C: the answer may still arrive on this connection
            self._drop()
            raise
        if status == 200:
            return body
        raise failure_of_response(status, body)

    def _exchange(
        self, method: str, path: str, end: End, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        def begin() -> http.client.HTTPResponse:
            connection = self._connection()
            send(connection, end, method, path, data, headers)
            return connection.getresponse()

        try:
            response = begin()
        except _ENDED:
            self._drop()
            response = begin()
        return response.status, response.read()

    def _connection(self) -> http.client.HTTPConnection:
        """The connection of this thread."""
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._new()
            self._open.append(found)
        return found

    def _new(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(host, port, context=self._tls)
        return http.client.HTTPConnection(host, port)

    def _drop(self) -> None:
        found = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
            self._open.remove(found)
            del self._local.connection


class Grpc:
    """A channel, which all threads share."""

    def __init__(self, address: str, token: str | None, authority: str | None) -> None:
        import grpc

        found = urlsplit(address)
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.service_config", json.dumps(_RETRIES)),
        ]
        if found.scheme == "grpcs":
            credentials = grpc.ssl_channel_credentials(_read(authority))
            self._channel = grpc.secure_channel(found.netloc, credentials, options)
        else:
            self._channel = grpc.insecure_channel(found.netloc, options)
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def predict(self, choice: ModelChoice, data: bytes, timeout: float) -> bytes:
        return self.call(f"{_SERVICE}PredictionService/Predict", data, timeout)

    def status(self, model: str, timeout: float) -> dict[int, str]:
        request = messages().GetModelStatusRequest()
        request.model_spec.name = model
        data = self.call(
            f"{_SERVICE}ModelService/GetModelStatus", request.SerializeToString(), timeout
        )
        names = {number: name for name, number in STATES.items()}
        found = parse("GetModelStatusResponse", data).model_version_status
        return {row.version: names.get(row.state, "UNKNOWN") for row in found}

    def open_session(self, choice: ModelChoice, seed: int | None, timeout: float) -> Opened:
        request = messages().CreateSessionRequest()
        choice.fill(request.model_spec)
        if (given := seed_of(seed)) is not None:
            request.seed = (given + 2**63) % 2**64 - 2**63  # int64: the same seed modulo 2**64
        data = self.call(f"{_SESSIONS}Create", request.SerializeToString(), timeout)
        found = parse("CreateSessionResponse", data)
        return Opened(found.session_id, found.model_spec.version.value)

    def step(self, model: str, session: str, data: bytes, timeout: float) -> bytes:
        return self.call(f"{_SESSIONS}Predict", data, timeout)

    def stream(self, model: str, session: str, data: bytes, timeout: float | None) -> Stream:
        method = self._channel.unary_stream(f"{_SESSIONS}Generate")
        return Answers(method(data, timeout=timeout, metadata=self._metadata))

    def close_session(self, model: str, session: str, timeout: float) -> None:
        request = messages().CloseSessionRequest()
        request.session.model, request.session.session_id = model, session
        self.call(f"{_SESSIONS}Close", request.SerializeToString(), timeout)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: str, data: bytes, timeout: float) -> bytes:
        import grpc

        call = self._channel.unary_unary(method)
        try:
            found: bytes = call(data, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise failure_of_call(error) from None
        return found


def _path(model: str) -> str:
    return f"/v1/models/{quote(model, safe='')}"


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
