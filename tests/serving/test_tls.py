"""TLS with files and with TensorFlow Serving's SSLConfig, and client certificates."""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from graphc.cli.arguments import parse
from graphc.cli.serve import config_of
from graphc.errors import AttributeValueError
from graphc.serving import Server, ServerConfig, TlsConfig
from graphc.serving.protocol.config_text import parse_ssl
from graphc.serving.protocol.messages import messages
from tests.serving.certificates import Authority, Pair, client_context
from tests.serving.fakes import manager


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def own(authority: Authority) -> Pair:
    """The certificate of the server."""
    return authority.sign("server")


def ssl_config(own: Pair, authority: Authority | None = None) -> str:
    """The text of an SSLConfig as for TensorFlow Serving: PEM with line breaks written as \\n."""

    def line(name: str, path: Path) -> str:
        text = path.read_text().replace("\n", "\\n")
        return f'{name}: "{text}"\n'

    text = line("server_key", own.key) + line("server_cert", own.certificate)
    if authority is not None:
        text += line("custom_ca", authority.path) + "client_verify: true\n"
    return text


def served(tmp_path: Path, text: str, *more: Any) -> Server:
    """A server with these flags."""
    (tmp_path / "ssl.config").write_text(text)
    flags = ["--model_base_path", tmp_path, "--ssl_config_file", tmp_path / "ssl.config"]
    flags += ["--port=0", "--rest_api_port=0", *more]
    return Server(config_of(parse(["serve", *map(str, flags)])), manager=manager())


def status(server: Server, authority: Authority, client: Pair | None = None) -> Any:
    """The answer to GetModelStatus over gRPC."""
    key, certificate = (None, None) if client is None else client.texts()
    credentials = grpc.ssl_channel_credentials(
        authority.path.read_bytes(), key and key.encode(), certificate and certificate.encode()
    )
    with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
        call = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
        request = messages().GetModelStatusRequest()
        request.model_spec.name = "double"
        answer = messages().GetModelStatusResponse()
        answer.ParseFromString(call(request.SerializeToString(), timeout=60))
        return answer.model_version_status[0].version


def test_an_ssl_config_is_for_grpc_alone(tmp_path: Path, authority: Authority, own: Pair) -> None:
    with served(tmp_path, ssl_config(own)) as server:
        assert status(server, authority) == 3
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
            with pytest.raises(grpc.RpcError):
                call(b"", timeout=60)
        with closing(http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)) as rest:
            rest.request("GET", "/v1/models/double")
            assert rest.getresponse().status == 200


@pytest.fixture
def verifying(tmp_path: Path, authority: Authority, own: Pair) -> Iterator[Server]:
    """A server whose two endpoints require client certificates."""
    files = "--tls_certificate", own.certificate, "--tls_key", own.key
    files += "--tls_client_ca", authority.path
    with served(tmp_path, ssl_config(own, authority), *files) as server:
        yield server


def test_certificates_of_clients(verifying: Server, authority: Authority, tmp_path_factory) -> None:
    known = authority.sign("client")
    stranger = Authority(tmp_path_factory.mktemp("other"), "other").sign("stranger")
    assert status(verifying, authority, known) == 3
    for client in (None, stranger):
        with pytest.raises(grpc.RpcError) as caught:
            status(verifying, authority, client)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE

    def ask(client: Pair | None) -> int:
        context = client_context(authority, client)
        rest = http.client.HTTPSConnection(
            "127.0.0.1", verifying.rest_port, context=context, timeout=60
        )
        with closing(rest):
            rest.request("GET", "/v1/models/double")
            return rest.getresponse().status

    assert ask(known) == 200
    for client in (None, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            ask(client)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("server_key: 3", "not a SSLConfig in protobuf text format"),
        ('server_key: "/keys/server.pem"', "ssl.config: server_key must be a text in PEM form"),
        ("", "ssl.config: server_key must be a text in PEM form"),
        ("client_verify: true", "ssl.config: client_verify needs custom_ca"),
    ],
)
def test_ssl_configs_that_are_refused(text: str, error: str) -> None:
    with pytest.raises(AttributeValueError, match=error):
        parse_ssl(text, "ssl.config")


def test_an_authority_without_client_verify_asks_nothing(own: Pair, authority: Authority) -> None:
    text = ssl_config(own, authority).replace("client_verify: true", "client_verify: false")
    assert parse_ssl(text) == TlsConfig(*own.texts())


def test_the_key_is_not_shown(own: Pair) -> None:
    assert "BEGIN" not in repr(ServerConfig((), grpc_tls=TlsConfig(*own.texts())))


def test_keys_that_do_not_fit(own: Pair, authority: Authority) -> None:
    other = authority.sign("other")
    files = ServerConfig(
        (), port=0, rest_port=0, tls_certificate=str(own.certificate), tls_key=str(other.key)
    )
    texts = ServerConfig(
        (),
        port=0,
        rest_port=None,
        grpc_tls=TlsConfig(other.key.read_text(), own.certificate.read_text()),
    )
    missing = ServerConfig((), port=0, rest_port=0, tls_certificate="nowhere", tls_key="nowhere")
    for config, error in (
        (files, "cannot be used"),
        (texts, "does not take"),
        (missing, "No such"),
    ):
        with pytest.raises(AttributeValueError, match=error), Server(config, manager=manager()):
            pass
