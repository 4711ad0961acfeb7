"""Brokers of this machine for tests, each with its own ports and folder; what arrived is read by another client."""

import base64
import json
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import pytest
from waiting import eventually

from partbox.chaos.network import CUT, HALF, HOST, PASS, Network

BOOT = 100.0
RUNNING: set[int] = set()
"""Processes of brokers, which outlive a test."""


@dataclass(frozen=True)
class Received:
    """A message as a consumer has it; `id` is the CloudEvents attribute."""

    topic: str
    key: str | None
    id: str
    value: bytes
    attributes: Mapping[str, str]  # by their CloudEvents names
    headers: Mapping[str, str]  # all others, the content type among them


def received(
    topic: str, headers: Mapping[str, str], prefix: str, value: bytes, key: str | None = None, own: tuple[str, ...] = ()
) -> Received:
    attributes = {name.removeprefix(prefix): text for name, text in headers.items() if name.startswith(prefix)}
    others = {name: text for name, text in headers.items() if not name.startswith(prefix) and name not in own}
    return Received(
        topic, attributes.get("partitionkey") if key is None else key, attributes["id"], value, attributes, others
    )


class Broker:
    """One server. `url` is what `partbox relay --to` gets; `small_url` the same, to refuse what is over `largest`."""

    program: ClassVar[str | None] = None
    largest: ClassVar[int]  # bytes of a payload; more it refuses for good
    words: ClassVar[str]  # with which it does so for the JSON of a text of so many characters
    lacking: ClassVar[str] = ""  # with which it says that there is no {topic}, and the remedy
    no_topics: ClassVar[str | None] = None  # why there can be none missing
    no_faults: ClassVar[str | None] = None  # why it cannot be stopped

    def __init__(self, folder: Path) -> None:
        if self.program is not None and which(self.program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{self.program} is not installed")
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def small_url(self) -> str:
        return self.url

    @property
    def strict_url(self) -> str:
        """The URL with which no topic is made by sending to it."""
        return self.url

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it answers."""
        with socket.create_connection((HOST, self.port), timeout=1):
            return True

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )
        RUNNING.add(self.process.pid)
        eventually(self._answers, BOOT)

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def kill(self) -> None:
        """End it at once, with all its processes."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            RUNNING.discard(self.process.pid)
            self.process = None

    def go(self) -> None:
        """Be out of reach, all connections lost; what it has acknowledged is there when it comes back."""
        self.kill()

    def come_back(self) -> None:
        self.start()

    def hold(self) -> None:
        """Answer nobody until it is released; what it has taken in then is done, or never is."""
        self._signal(signal.SIGSTOP)

    def release(self) -> None:
        self._signal(signal.SIGCONT)

    def slow(self) -> None:
        """Answer late."""
        self.hold()

    def quick(self) -> None:
        self.release()

    def prepare(self, *topics: str) -> None:
        """Have these taken: queues, streams."""

    def keep_up(self, *topics: str) -> None:
        """Read what is there, where one that holds much gets slow."""

    def remove(self, *topics: str) -> None:
        """Leave nothing of them, if others use the server too."""

    def all(self, *topics: str) -> list[Received]:
        """What arrived so far, those of a topic in their order."""
        raise NotImplementedError

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2_000:]
        try:
            return self.ready()
        except Exception:
            return False


class Redis(Broker):
    program = "redis-server"
    largest = 1 << 20
    words = "Redis takes no value of 1,048,578 bytes, only of 1,048,576: raise its proto-max-bulk-len"
    no_topics = "a stream is made by the first entry"

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> list[str]:
        return [
            "redis-server", "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--proto-max-bulk-len", str(self.largest),
        ]  # fmt: skip

    def ready(self) -> bool:
        return bool(self.client().ping())

    def all(self, *topics: str) -> list[Received]:
        found = []
        for topic in topics:
            for _, pairs in self.client().xrange(topic):
                data = pairs.pop(b"data")
                fields = {name.decode(): text.decode() for name, text in pairs.items()}
                found.append(received(topic, fields, "ce_", data, own=("key",)))
        return found

    def client(self) -> Any:
        import valkey

        return valkey.Valkey(HOST, self.port)


class Nats(Broker):
    program = "nats-server"
    largest = 100_000
    words = "headers included: raise its max_payload"
    lacking = "no stream of NATS takes the subject '{topic}': add one, or the subject to one"

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def command(self) -> list[str]:
        config = self.folder / "nats.conf"
        config.write_text(f"max_payload: {self.largest}\n")
        return [
            "nats-server", "-c", str(config), "-a", HOST, "-p", str(self.port), "-js", "-sd", str(self.folder / "data"),
        ]  # fmt: skip

    def prepare(self, *topics: str, largest: int = -1) -> None:
        """`largest`: bytes of a message that the stream takes, -1 all."""

        async def add(client: Any) -> None:
            await client.jetstream().add_stream(name=_stream(topics), subjects=[*topics], max_msg_size=largest)

        self._with(add)

    def all(self, *topics: str) -> list[Received]:
        async def read(client: Any) -> list[Received]:
            manager, found = client.jsm(), []
            state = (await manager.stream_info(_stream(topics))).state
            for number in range(max(1, state.first_seq), state.last_seq + 1):
                raw = await manager.get_msg(_stream(topics), number)
                found.append(received(raw.subject, raw.headers, "ce-", raw.data or b"", own=("Nats-Msg-Id",)))
            return found

        return list(self._with(read))

    def _with(self, what: Any) -> Any:
        import asyncio

        import nats

        async def run() -> Any:
            client = await nats.connect(self.url)
            try:
                return await what(client)
            finally:
                await client.close()

        return asyncio.run(run())


class Rabbit(Broker):
    program = "rabbitmq-server"
    largest = 100_000
    words = "RabbitMQ says .*message size 100002 is larger than configured max size 100000"
    lacking = "RabbitMQ has no queue '{topic}': declare it"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.distribution, self.epmd = free_port(), free_port()
        self.mapper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    def command(self) -> list[str]:
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def environment(self) -> dict[str, str]:
        config = self.folder / "rabbitmq.conf"
        config.write_text(
            f"listeners.tcp.1 = {HOST}:{self.port}\nlog.console.level = error\nlog.file = false\n"
            f"max_message_size = {self.largest}\n"
        )
        (self.folder / "plugins").write_text("[].\n")
        return super().environment() | {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"partbox{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "ERL_EPMD_PORT": str(self.epmd),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def ready(self) -> bool:
        with socket.create_connection((HOST, self.port), timeout=1) as link:
            link.sendall(b"AMQP\x00\x00\x09\x01")
            return bool(link.recv(1))

    def start(self) -> None:
        # One of its own, which ends with it: what Erlang starts by itself is a daemon and stays.
        self.mapper = subprocess.Popen(["epmd", "-port", str(self.epmd), "-address", HOST], start_new_session=True)
        RUNNING.add(self.mapper.pid)
        super().start()

    def kill(self) -> None:
        super().kill()
        if self.mapper is not None:
            self.mapper.kill()
            self.mapper.wait()
            RUNNING.discard(self.mapper.pid)
            self.mapper = None

    def prepare(self, *topics: str) -> None:
        with self._channel() as channel:
            for topic in topics:
                channel.queue_declare(topic, durable=True)

    def exchange(self, name: str, *topics: str) -> None:
        """Declare an exchange, and bind the queues of these to it."""
        with self._channel() as channel:
            channel.exchange_declare(name, "direct", durable=True)
            for topic in topics:
                channel.queue_bind(topic, name)

    def all(self, *topics: str) -> list[Received]:
        found = []
        with self._channel() as channel:
            for topic in topics:
                while (got := channel.basic_get(topic))[0] is not None:  # unacknowledged: it stays there
                    _, properties, body = got
                    found.append(received(topic, properties.headers, "cloudEvents:", body))
        return found

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        import pika

        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            connection.close()


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


def _one_at_a_time(application: Any) -> Any:
    """moto's application for one request at a time: what comes in while another message is deleted may be lost in it.

    Those that wait for messages change nothing.
    """
    lock = threading.Lock()

    class Locked(application):  # type: ignore[misc]
        def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
            waits = environ.get("HTTP_X_AMZ_TARGET", "").endswith("ReceiveMessage")
            with nullcontext() if waits else lock:
                return super().__call__(environ, start_response)

    return Locked


class Sqs(Broker):
    """SQS as moto has it, in memory of this process: it keeps nothing, so what is cut is the way to it."""

    largest = 1 << 20
    lacking = "SQS has no queue '{topic}.fifo' here: create it"
    words = "SQS: .*Batch requests cannot be longer than"
    REGION = "eu-central-1"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from moto.moto_server import threaded_moto_server as moto
        from moto.sqs.models import Queue

        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # or it tells of each request
        for count in ("", "_delayed", "_not_visible"):  # of all messages, with every one that comes in
            setattr(Queue, f"approximate_number_of_messages{count}", 0)
        moto.DomainDispatcherApplication = _one_at_a_time(moto.DomainDispatcherApplication)  # type: ignore[misc]
        self._server = moto.ThreadedMotoServer(HOST, self.port, verbose=False)
        self._network = Network(HOST, self.port)
        self._taken: dict[str, list[Received]] = {}

    @property
    def url(self) -> str:
        return f"sqs://{self.REGION}?endpoint=http://{HOST}:{self._wire.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self._server.start()
        self._network.start()
        self._wire = self._network.wire()

    def kill(self) -> None:
        self._network.stop()
        self._server.stop()

    def go(self) -> None:
        self._network.set(self._wire, CUT)

    def come_back(self) -> None:
        self._network.set(self._wire, PASS)

    def hold(self) -> None:
        self._network.set(self._wire, HALF)

    def release(self) -> None:
        self._network.set(self._wire, PASS)

    def prepare(self, *topics: str) -> None:
        for topic in topics:
            self._client().create_queue(QueueName=f"{topic}.fifo", Attributes={"FifoQueue": "true"})
            self._taken[topic] = []

    def keep_up(self, *topics: str) -> None:
        self.all(*topics)

    def all(self, *topics: str) -> list[Received]:
        client = self._client()
        for topic in topics:
            queue = client.get_queue_url(QueueName=f"{topic}.fifo")["QueueUrl"]
            while found := client.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
            ).get("Messages"):
                self._taken[topic] += [_of_sqs(topic, each) for each in found]
                gone = [{"Id": each["MessageId"], "ReceiptHandle": each["ReceiptHandle"]} for each in found]
                client.delete_message_batch(QueueUrl=queue, Entries=gone)
        return [each for topic in topics for each in self._taken[topic]]

    def _client(self) -> Any:
        import boto3

        return boto3.client("sqs", region_name=self.REGION, endpoint_url=self.endpoint)


def _of_sqs(topic: str, message: dict[str, Any]) -> Received:
    headers = {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}
    headers |= json.loads(headers.pop("headers", "{}"))
    body = message["Body"].encode()
    if headers.pop("encoding", None) == "base64":
        body = base64.b64decode(body)
    key = message["Attributes"]["MessageGroupId"] if "ce_subject" in headers else None
    return received(topic, headers, "ce_", body, headers.get("ce_subject") and key)


def _stream(topics: tuple[str, ...]) -> str:
    return topics[0].upper()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
