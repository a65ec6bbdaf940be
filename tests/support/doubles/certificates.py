"""A certificate authority for tests: server certificates for loopback, signed by a root that nobody else trusts."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """Files of one authority.

    Attributes:
        ca_cert: The root, which clients are given.
        certificate: The server's certificate for 127.0.0.1, ::1 and localhost.
        key: The server's key.
    """

    ca_cert: Path
    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """A TLS context for a server in this process."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_certificates(folder: Path, name: str = "test") -> Certificates:
    """Make a root and a server certificate.

    Args:
        folder: Where the files go; made if needed.
        name: Beginning of the file names and the authority's common name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    now = datetime.now(timezone.utc)

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
        )

    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = (
        builder(root_name, root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    server = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()),
            critical=False,
        )
        .sign(root_key, hashes.SHA256())
    )
    files = Certificates(folder / f"{name}-ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
    files.ca_cert.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(private_pem(server_key))
    return files


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key file's content."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
