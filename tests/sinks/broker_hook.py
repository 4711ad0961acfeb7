"""A web server for webhooks."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from brokers import HOST, Broker, Received, received


class Hook(Broker):
    """A web server that keeps what is posted to it in a list, which outlives it. `answer`: status of the next ones."""

    largest = 100_000
    words = "HTTP 413"
    no_topics = "a webhook has none"

    @dataclass
    class Answer:
        status: int = 200
        headers: dict[str, str] = field(default_factory=dict)
        times: float = float("inf")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.answers: dict[str, Hook.Answer] = {}  # by the value of the payload
        self._open = threading.Event()  # while it is not, answers wait
        self._open.set()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"

    def start(self) -> None:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size)
                # The sender was killed in the midst of it, or this came over a connection that was still there.
                if len(body) < size or self.server is not hook._server:
                    self.close_connection = True
                    return
                answer = hook.answer(body)
                if 200 <= answer.status < 300:
                    hook.taken.append(({name.lower(): text for name, text in self.headers.items()}, body))
                hook._open.wait()
                self.send_response(answer.status)
                for name, text in answer.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 100

            def handle_error(self, *_: Any) -> None: ...  # who asked has gone

        self._open.set()
        self._server = Server((HOST, self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, body: bytes) -> "Hook.Answer":
        if len(body) > self.largest:
            return Hook.Answer(413)
        answer = self.answers.get(body.decode(errors="replace"))
        if answer is None or answer.times == 0:
            return Hook.Answer()
        answer.times -= 1
        return answer

    def prepare(self, *topics: str) -> None:
        self.taken.clear()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def kill(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def all(self, *topics: str) -> list[Received]:
        own = ("host", "user-agent", "accept", "accept-encoding", "connection", "content-length")
        return [received(topics[0], headers, "ce-", body, own=own) for headers, body in self.taken]
