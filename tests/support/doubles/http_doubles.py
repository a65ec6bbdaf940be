"""An HTTP server for tests whose replies come from a function and whose faults are data (`registry_faults`)."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from doubles.certificates import Certificates
from doubles.registry_faults import Fault, Reply, Request

_TLS_HANDSHAKE = b"\x16"
_PIECE_BYTES = 1024 * 1024
_SETTLE_SECONDS = 20.0


@dataclass
class HttpDouble:
    """A server that runs: subclasses say what it replies.

    Attributes:
        host: `127.0.0.1:PORT`; known once it runs.
        scheme: `http` or `https`; likewise.
        faults: What goes wrong.
        requests: What was asked, in the order of the answers.
    """

    host: str = ""
    scheme: str = "http"
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _settled: threading.Condition = field(default_factory=threading.Condition)
    _open_connections: int = 0

    @property
    def url(self) -> str:
        """`scheme://host`."""
        return f"{self.scheme}://{self.host}"

    def asked(self, method: str, path: str = "") -> list[Request]:
        """The requests whose method and path match these regular expressions."""
        return [one for one in self.requests if re.fullmatch(method, one.method) and re.search(path, one.path)]

    def settle(self) -> None:
        """Wait until every connection has ended, so that `requests` is complete; clients are closed before."""
        with self._settled:
            assert self._settled.wait_for(lambda: self._open_connections == 0, _SETTLE_SECONDS)

    @contextlib.contextmanager
    def connection(self) -> Iterator[None]:
        """Counts one connection for `settle`."""
        with self._settled:
            self._open_connections += 1
        try:
            yield
        finally:
            with self._settled:
                self._open_connections -= 1
                self._settled.notify_all()

    def reply(self, request: Request) -> Reply:
        """The correct reply to a request."""
        raise NotImplementedError


@contextlib.contextmanager
def serving(double: HttpDouble, *, certificates: Certificates | None = None, port: int = 0) -> Iterator[None]:
    """Let a double answer on loopback, in this process.

    Args:
        double: Its host and scheme are filled in.
        certificates: For https.
        port: 0 for a free one.
    """
    handler = type("Handler", (_Handler,), {"double": double})
    server = _Server(("127.0.0.1", port), handler)
    if certificates:
        context = certificates.server_context()
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    double.host = f"127.0.0.1:{server.server_address[1]}"
    double.scheme = "https" if certificates else "http"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    double: HttpDouble

    def handle(self) -> None:
        with self.double.connection(), contextlib.suppress(ConnectionError, OSError):
            if self.double.scheme == "http" and self.connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
                return  # a client tries https first; Go's server says no to that at once, too
            super().handle()

    def _serve(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, parts.path, parts.query, headers)
        length = int(headers.get("content-length", 0))
        fault = self._fault(request, length, is_early=True)
        if fault is None:
            request = replace(request, body=self._read_body(headers, length))
            fault = self._fault(request, len(request.body), is_early=False)
        served = request

        def serve() -> Reply:
            return self.double.reply(served)

        reply = fault.change(request, serve) if fault else serve()
        if fault and fault.is_early:
            self.close_connection = True
        self.double.requests.append(replace(request, status=0 if reply.is_reset else reply.status))
        self._send(reply)

    def _fault(self, request: Request, body_bytes: int, *, is_early: bool) -> Fault | None:
        with self.double.lock:
            faults = (fault for fault in self.double.faults if fault.is_early == is_early)
            return next((fault for fault in faults if fault.strikes(request, body_bytes)), None)

    def _read_body(self, headers: Mapping[str, str], length: int) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            raw = self.rfile.read(length)
            if len(raw) < length:
                raise ConnectionError
            return raw
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _send(self, reply: Reply) -> None:
        if reply.is_reset:
            self._break()
            return
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        if reply.is_endless:
            self.send_header("Connection", "close")
        elif not reply.header("Content-Length") and reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(reply.body if reply.cut_after is None else reply.body[: reply.cut_after])
        if reply.is_endless:
            self.close_connection = True
            while True:
                self.wfile.write(bytes(_PIECE_BYTES))
        if reply.cut_after is not None:
            self.wfile.flush()
            self.close_connection = True

    def _break(self) -> None:
        # Without lingering a close becomes a reset, also of what was not read yet.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        raise ConnectionError

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class names them

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Broken connections are what this is for."""
