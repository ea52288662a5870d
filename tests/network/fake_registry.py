"""A schema registry that answers as a test asks, over HTTP on the loopback address."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Status, headers, and a body: bytes, or anything that JSON has.
Answer = tuple[int, dict[str, str], object]


@dataclass
class FakeRegistry:
    """``answer`` is given method, path and body of each request; ``requests`` lists them."""

    answer: Callable[[str, str, object], Answer]
    requests: list[tuple[str, str, object, dict[str, str]]] = field(default_factory=list)
    #: Of the server, which then answers by https.
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> FakeRegistry:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(size)
                body = json.loads(raw) if raw.startswith(b"{") else raw or None
                registry.requests.append((self.command, self.path, body, dict(self.headers)))
                status, headers, found = registry.answer(self.command, self.path, body)
                data = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(data))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    return  # the client has had enough

            do_GET = do_POST = _serve  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A client that does not trust us hangs up: what it says of that is tested."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if self.tls is not None:
            # The handshake is made by the connection's own thread, in its first read.
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}/api"


def same(status: int, body: object, **headers: str) -> Callable[[str, str, object], Answer]:
    """The same answer to everything."""
    return lambda *_: (status, headers, body)
