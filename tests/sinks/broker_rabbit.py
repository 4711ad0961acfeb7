"""RabbitMQ, read by pika."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brokers import HOST, RUNNING, Broker, Received, free_port, received


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

    def alarm(self, on: bool) -> None:
        """Be out of memory, and so block whoever publishes; or have enough again."""
        limit = "set_vm_memory_high_watermark", "absolute", "1" if on else "100GB"
        command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--quiet", *limit]
        subprocess.run(command, env=self.environment(), check=True, capture_output=True)

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
