"""A token server for docker-registry's token authentication: signs what it is asked for, counts, and may misbehave."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from doubles.certificates import Certificates


@dataclass
class TokenServer:
    """A token server that runs.

    Attributes:
        realm: Its URL, which registries put into their challenge.
        service: The audience of its tokens.
        issuer: Its name in tokens.
        signing_certificate: What a registry checks tokens with.
        users: User names and passwords.
        lifetime_seconds: May be changed while it runs.
        log: Per request its method, query, user and status.
        tokens: Every token that was given out.
        refresh_tokens: Identity token -> user, for the OAuth2 grant.
    """

    realm: str
    service: str
    issuer: str
    signing_certificate: Path
    users: Mapping[str, str]
    lifetime_seconds: int
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    log: list[tuple[str, str, str, int]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    refresh_tokens: dict[str, str] = field(default_factory=dict)

    def user_of(self, authorization: str) -> str | None:
        """The user of an Authorization header; empty for none, None when refused."""
        if not authorization:
            return ""
        user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return user if self.users.get(user) == password else None

    def issue(self, scopes: list[str], user: str) -> dict[str, object]:
        """A token for what the user may do of what is asked."""
        access = []
        for scope in (part for text in scopes for part in text.split(" ") if part):
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            allowed = {"pull", "push"} if user else ({"pull"} if name.startswith("public/") else set())
            granted = [action for action in actions.split(",") if action in allowed]
            if granted:
                access.append({"type": kind, "name": name, "actions": granted})
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": user, "aud": self.service, "exp": now + self.lifetime_seconds,
                  "nbf": now - 5, "iat": now, "jti": _url_base64(os.urandom(9)), "access": access}  # fmt: skip
        token = self._signed(claims)
        self.tokens.append(token)
        return {"token": token, "access_token": token, "expires_in": self.lifetime_seconds}

    def _signed(self, claims: Mapping[str, object]) -> str:
        chain = [base64.b64encode(self.certificate.public_bytes(serialization.Encoding.DER)).decode()]
        header = {"typ": "JWT", "alg": "ES256", "x5c": chain}
        text = f"{_url_base64(json.dumps(header).encode())}.{_url_base64(json.dumps(claims).encode())}"
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_url_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


@contextlib.contextmanager
def running_token_server(
    folder: Path,
    users: Mapping[str, str],
    *,
    lifetime_seconds: int = 60,
    certificates: Certificates | None = None,
) -> Iterator[TokenServer]:
    """A token server in this process on a free port.

    Args:
        folder: Where the signing certificate goes.
        users: User names and passwords.
        lifetime_seconds: How long a token is good for.
        certificates: For https.
    """
    key, certificate = _signer()
    signing_certificate = folder / "token-signer.crt"
    signing_certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            user = state.user_of(self.headers.get("Authorization", ""))
            self._answer(user, query.get("scope", []))

        def do_POST(self) -> None:
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            user = None
            if form.get("grant_type") == ["refresh_token"]:
                user = state.refresh_tokens.get(form.get("refresh_token", [""])[0])
            self._answer(user, form.get("scope", []))

        def _answer(self, user: str | None, scopes: list[str]) -> None:
            status = 401 if user is None else 200
            body = {"errors": [{"code": "UNAUTHORIZED"}]} if user is None else state.issue(scopes, user)
            state.log.append((self.command, urllib.parse.urlsplit(self.path).query, user or "", status))
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificates:
        server.socket = certificates.server_context().wrap_socket(server.socket, server_side=True)
    scheme, port = "https" if certificates else "http", server.server_address[1]
    state = TokenServer(
        f"{scheme}://127.0.0.1:{port}/token", "test-registry", "test-issuer", signing_certificate, users,
        lifetime_seconds, key, certificate,
    )  # fmt: skip
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _signer() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "token signer")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _url_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
