"""Cross-origin requests over sockets."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from graphc.errors import AttributeValueError
from graphc.serving import Server, ServerConfig
from graphc.serving.endpoints.cors import Cors
from graphc.serving.server import asgi
from tests.serving.fakes import Reply, ask, manager

PATH = "/v1/models/double:predict"
ALLOWED = "https://shop.example"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with tokens, which pages of one origin may call."""
    config = ServerConfig(
        (), port=None, rest_port=0, tokens=("secret",), cors_origins=(ALLOWED, "http://localhost:1")
    )
    with Server(config, manager=manager()) as found:
        yield found


def request(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)) as found:
        found.request(method, path, body, fields)
        answer = found.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())


def test_a_preflight_request_needs_no_token(server: Server) -> None:
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "x"}
    reply = request(server, "OPTIONS", PATH, origin=ALLOWED, **asked)
    assert reply.status == 204 and reply.body == b"" and "content-length" not in reply.headers
    assert reply.headers["access-control-allow-origin"] == ALLOWED
    assert reply.headers["access-control-allow-methods"] == "GET, HEAD, POST, DELETE, OPTIONS"
    assert "authorization" in reply.headers["access-control-allow-headers"]
    assert reply.headers["vary"] == "origin"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"{ALLOWED}.evil", "null", "http://shop.example"]
)
def test_pages_of_other_origins(server: Server, origin: str) -> None:
    reply = request(server, "OPTIONS", PATH, origin=origin, access_control_request_method="POST")
    assert reply.status == 403 and origin in reply.error
    assert "access-control-allow-origin" not in reply.headers
    reply = request(
        server, "GET", "/v1/models/double", origin=origin, authorization="Bearer secret"
    )
    assert reply.status == 200 and "access-control-allow-origin" not in reply.headers
    assert reply.headers["vary"] == "origin"


def test_answers_and_errors_have_the_headers(server: Server) -> None:
    body = b'{"instances": [[1, 2]]}'
    for token, status in (("secret", 200), ("wrong", 401)):
        reply = request(server, "POST", PATH, body, origin=ALLOWED, authorization=f"Bearer {token}")
        assert reply.status == status
        assert reply.headers["access-control-allow-origin"] == ALLOWED


def test_paths_that_are_not_models(server: Server) -> None:
    for path in ("/health/live", "/monitoring/prometheus/metrics", "/status", "/status/reload"):
        asked = {"origin": ALLOWED, "access_control_request_method": "POST"}
        for method in ("OPTIONS", "GET"):
            reply = request(server, method, path, **asked)
            assert not [name for name in reply.headers if name.startswith("access-control")]


def test_every_origin() -> None:
    application = Cors(asgi(manager()), ["*"])
    asked = {"origin": "null", "access-control-request-method": "POST"}
    assert ask(application, "OPTIONS", PATH, headers=asked).status == 204
    reply = ask(application, "GET", "/v1/models/double")  # also without an origin, for caches
    assert reply.headers["access-control-allow-origin"] == "*" and "vary" not in reply.headers


def test_options_without_cors() -> None:
    asked = {"origin": ALLOWED, "access-control-request-method": "POST"}
    reply = ask(asgi(manager()), "OPTIONS", PATH, headers=asked)
    assert reply.status == 405 and "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("origin", ["shop.example", "https://shop.example/", "https://a b", ""])
def test_what_is_not_an_origin(origin: str) -> None:
    with pytest.raises(AttributeValueError, match="is not an origin"):
        ServerConfig((), cors_origins=(origin,))
