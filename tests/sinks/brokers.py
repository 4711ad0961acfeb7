"""Brokers of this machine for tests, each with its own ports and folder; what arrived is read by another client."""

import base64
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import pytest
from waiting import eventually

HOST = "127.0.0.1"
BOOT = 60.0
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
    """One server. `url` is what `partbox relay --to` gets; `named` the name that the broker has for a topic."""

    program: ClassVar[str | None] = None
    durable: ClassVar[bool] = True  # what it has acknowledged is there after a SIGKILL
    largest: ClassVar[int | None] = None  # bytes of a payload that it refuses for good

    def __init__(self, folder: Path) -> None:
        if self.program is not None and which(self.program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{self.program} is not installed")
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

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

    def prepare(self, *topics: str) -> None:
        """Have these taken: queues, streams."""

    def all(self, *topics: str) -> list[Received]:
        """What arrived so far, those of a topic in their order."""
        raise NotImplementedError

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2_000:]
        try:
            return self.ready()
        except Exception:
            return False


class Redis(Broker):
    program = "redis-server"

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> list[str]:
        return [
            "redis-server", "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always",
        ]  # fmt: skip

    def ready(self) -> bool:
        return bool(self._client().ping())

    def all(self, *topics: str) -> list[Received]:
        found = []
        for topic in topics:
            for _, pairs in self._client().xrange(topic):
                data = pairs.pop(b"data")
                fields = {name.decode(): text.decode() for name, text in pairs.items()}
                found.append(received(topic, fields, "ce_", data, own=("key",)))
        return found

    def _client(self) -> Any:
        import valkey

        return valkey.Valkey(HOST, self.port)


class Nats(Broker):
    program = "nats-server"
    largest = 8 << 20

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def command(self) -> list[str]:
        return ["nats-server", "-a", HOST, "-p", str(self.port), "-js", "-sd", str(self.folder / "data")]

    def prepare(self, *topics: str) -> None:
        async def add(client: Any) -> None:
            await client.jetstream().add_stream(name=_stream(topics), subjects=[*topics])

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
    largest = None

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
        config.write_text(f"listeners.tcp.1 = {HOST}:{self.port}\nlog.console.level = error\nlog.file = false\n")
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

    @dataclass
    class Answer:
        status: int = 200
        headers: dict[str, str] = field(default_factory=dict)
        times: float = float("inf")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.answers: dict[str, Hook.Answer] = {}  # by the value of the payload
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"

    def start(self) -> None:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.server is not hook._server:  # over a connection that it still had
                    self.close_connection = True
                    return
                answer = hook.answer(body)
                if 200 <= answer.status < 300:
                    hook.taken.append(({name.lower(): text for name, text in self.headers.items()}, body))
                self.send_response(answer.status)
                for name, text in answer.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer((HOST, self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, body: bytes) -> "Hook.Answer":
        answer = self.answers.get(body.decode(errors="replace"))
        if answer is None or answer.times == 0:
            return Hook.Answer()
        answer.times -= 1
        return answer

    def prepare(self, *topics: str) -> None:
        self.taken.clear()

    def kill(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def all(self, *topics: str) -> list[Received]:
        own = ("host", "user-agent", "accept", "accept-encoding", "connection", "content-length")
        return [received(topics[0], headers, "ce-", body, own=own) for headers, body in self.taken]


class Sqs(Broker):
    """SQS as moto has it, in memory of this process."""

    durable = False
    REGION = "eu-central-1"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(HOST, self.port, verbose=False)
        self._taken: dict[str, list[Received]] = {}

    @property
    def url(self) -> str:
        return f"sqs://{self.REGION}?endpoint={self.endpoint}"

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self._server.start()

    def kill(self) -> None:
        self._server.stop()

    def prepare(self, *topics: str) -> None:
        for topic in topics:
            self._client().create_queue(QueueName=f"{topic}.fifo", Attributes={"FifoQueue": "true"})
            self._taken[topic] = []

    def all(self, *topics: str) -> list[Received]:
        client = self._client()
        for topic in topics:
            queue = client.get_queue_url(QueueName=f"{topic}.fifo")["QueueUrl"]
            while found := client.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
            ).get("Messages"):
                for each in found:
                    self._taken[topic].append(_of_sqs(topic, each))
                    client.delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
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


class Kafka(Broker):
    """librdkafka's mock cluster: Kafka's protocol over TCP, in memory of this process."""

    durable = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from confluent_kafka import Producer

        self._cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none:1"}, logger=_Silent())
        brokers = eventually(lambda: self._cluster.list_topics(timeout=5).brokers.values())
        self.servers = ",".join(f"{each.host}:{each.port}" for each in brokers)

    @property
    def url(self) -> str:
        return f"kafka://{self.servers}"

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def create(self, topic: str) -> None:
        """A topic that is asked for is made."""
        eventually(lambda: self._cluster.list_topics(topic, timeout=5).topics[topic].error is None)

    def all(self, *topics: str) -> list[Received]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "all", "enable.partition.eof": True}, logger=_Silent()
        )
        found = []
        try:
            known = consumer.list_topics(timeout=10).topics
            places = [
                TopicPartition(topic, number, 0)
                for topic in topics
                if topic in known
                for number in known[topic].partitions
            ]
            consumer.assign(places)
            left = len(places)
            while left:
                message = consumer.poll(10)
                assert message is not None
                if message.error():
                    left -= 1
                    continue
                headers = {name: text.decode() for name, text in message.headers() or ()}
                key = message.key()
                found.append(
                    received(message.topic(), headers, "ce_", message.value(), None if key is None else key.decode())
                )
        finally:
            consumer.close()
        return found


class _Silent:
    def log(self, *_: Any) -> None: ...


def _stream(topics: tuple[str, ...]) -> str:
    return topics[0].upper()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


BROKERS: dict[str, type[Broker]] = {
    "kafka": Kafka,
    "rabbitmq": Rabbit,
    "nats": Nats,
    "redis": Redis,
    "webhook": Hook,
    "sqs": Sqs,
}
