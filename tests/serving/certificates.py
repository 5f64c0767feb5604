"""Certificate authorities and certificates for TLS tests."""

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """The PEM files of a certificate and its key."""

    certificate: Path
    key: Path

    def texts(self) -> tuple[str, str]:
        """Key and certificate, in the order of TlsConfig."""
        return self.key.read_text(), self.certificate.read_text()


class Authority:
    """Signs certificates for 127.0.0.1. Its own certificate is at `path`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.path, _ = self._write(name, self._key, authority=True)

    def sign(self, name: str) -> Pair:
        """Makes a certificate and its key."""
        return self._write(name, ec.generate_private_key(ec.SECP256R1()), authority=False)

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, authority: bool) -> Pair:
        now = datetime.datetime.now(datetime.UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([address]), False)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), True)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pem = serialization.Encoding.PEM
        private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pair.certificate.write_bytes(made.public_bytes(pem))
        pair.key.write_bytes(key.private_bytes(pem, *private))
        return pair


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def client_context(authority: Authority, client: Pair | None = None) -> ssl.SSLContext:
    """The SSL context of a client that trusts an authority and may have a certificate."""
    context = ssl.create_default_context(cafile=authority.path)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context
