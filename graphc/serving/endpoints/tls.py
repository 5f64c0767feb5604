"""TLS of both endpoints: files for REST; credentials and the port for gRPC."""

from __future__ import annotations

import socket
import ssl
from typing import Any, NamedTuple

from graphc.errors import AttributeValueError
from graphc.serving.config import ServerConfig, TlsConfig


class TlsFiles(NamedTuple):
    """PEM files: the certificate, its key, and the authority of clients or None."""

    certificate: str
    key: str
    client_ca: str | None


def tls_files(config: ServerConfig) -> TlsFiles | None:
    """The files of a configuration; None without TLS.

    Raises:
        AttributeValueError: a file cannot be read, or the key does not belong to the certificate.
    """
    if config.tls_certificate is None or config.tls_key is None:
        return None
    files = TlsFiles(config.tls_certificate, config.tls_key, config.tls_client_ca)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        for path in filter(None, files):
            with open(path, "rb"):
                pass
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise AttributeValueError(
            f"TLS: {files.certificate!r} and {files.key!r} cannot be used: {error}",
            hint="both are PEM files without a password, and the key is that of the certificate",
        ) from None
    return files


def _no_password() -> str:
    raise ValueError("the key has a password")


def grpc_credentials(config: ServerConfig) -> Any:
    """The credentials of the gRPC endpoint; None without TLS.

    Raises:
        AttributeValueError: as for `tls_files`.
    """
    tls = config.grpc_tls
    if tls is None:
        files = tls_files(config)
        if files is None:
            return None
        certificate, key, authority = (None if path is None else _read(path) for path in files)
    else:
        certificate, key, authority = _bytes(tls)
    import grpc

    return grpc.ssl_server_credentials(
        [(key, certificate)],
        root_certificates=authority,
        require_client_auth=authority is not None,
    )


def refused_by_grpc() -> AttributeValueError:
    """The error for credentials that gRPC does not take. It says why only on standard error."""
    return AttributeValueError(
        "TLS: gRPC does not take the certificate and its key",
        hint="both are in PEM form without a password, and the key is that of the certificate",
    )


def _bytes(tls: TlsConfig) -> tuple[bytes, bytes, bytes | None]:
    authority = None if tls.client_ca is None else tls.client_ca.encode()
    return tls.certificate.encode(), tls.key.encode(), authority


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def bind_grpc(server: Any, config: ServerConfig) -> int:
    """Gives a gRPC server its port, with TLS if it is configured. Returns the port.

    Raises:
        OSError: the port is in use, or the address is not one of this machine.
        AttributeValueError: the certificate or the key cannot be used.
    """
    address = f"[{config.host}]" if ":" in config.host else config.host
    address = f"{address}:{config.port}"
    credentials = grpc_credentials(config)
    try:
        if credentials is not None:
            return int(server.add_secure_port(address, credentials))
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        place = config.host, config.port or 0
        socket.create_server(place, family=family).close()  # says what is wrong with the port
        if credentials is not None:
            raise refused_by_grpc() from None
        raise OSError(f"gRPC cannot listen on {address}: {error}") from None
