"""A Docker daemon that says what a test wants: enough of the Engine API for docker-py, over TCP on loopback."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = {"Version": "26.1.5", "ApiVersion": "1.45", "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64"}
INFO = {"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]], "DockerRootDir": "/nowhere"}


@dataclass
class Answer:
    """One answer.

    Attributes:
        body: Its body.
        status: Its HTTP status.
        silent_seconds: How long the daemon is silent first.
        drops: Whether it closes the connection instead.
    """

    body: bytes
    status: int = 200
    silent_seconds: float = 0.0
    drops: bool = False


@dataclass
class ScriptedDocker:
    """What it answers, by the end of the path; and the bodies that it received."""

    url: str = ""
    answers: dict[str, Answer] = field(
        default_factory=lambda: {
            "/version": Answer(json.dumps(VERSION).encode()),
            "/info": Answer(json.dumps(INFO).encode()),
        }
    )
    requests: list[str] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def scripted_docker() -> Iterator[ScriptedDocker]:
    """Serve for as long as the block lasts."""
    script = ScriptedDocker()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            script.requests.append(f"{self.command} {self.path}")
            script.headers.append(dict(self.headers))
            script.received.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            found = next((answer for end, answer in script.answers.items() if path.endswith(end)), None)
            answer = found or Answer(b'{"message":"no such thing"}', 404)
            time.sleep(answer.silent_seconds)
            if answer.drops:
                self.close_connection = True
                return
            with contextlib.suppress(ConnectionError):  # the client has given up meanwhile
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the base class names them so

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    script.url = f"tcp://127.0.0.1:{server.server_address[1]}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
