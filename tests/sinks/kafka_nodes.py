"""Nodes of Apache Kafka, each a Java process that is a broker and a controller, on loopback and free ports."""

import base64
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from brokers import RUNNING, free_port
from kafka_libraries import libraries

from partbox_lab.chaos.network import HOST

SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a Java that starts soon and leaves the processors to others."""
LARGE = ("-Xmx1g",)
USER, PASSWORD = "relay", "word"
"""The only login that the listener SASL accepts."""
SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "controller.listener.names": "CONTROLLER",
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": "4000",  # after so long one that was killed leads nothing any more
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "2097152",  # a cleaner of the usual size takes half of a small heap
}


class Node:
    """One of them; `name` is its number in the cluster."""

    def __init__(self, name: int, folder: Path, java: tuple[str, ...]) -> None:
        self.name = name
        self.data = folder / f"data-{name}"
        self.client, self.controller, self.sasl = free_port(), free_port(), free_port()
        self._java = ["java", *java, "-cp", f"{libraries()}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._log, self._settings = folder / f"log-{name}", folder / f"{name}.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def voter(self) -> str:
        return f"{self.name}@{HOST}:{self.controller}"

    @property
    def server(self) -> str:
        return f"{HOST}:{self.client}"

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def format(self, settings: Mapping[str, str], cluster: str) -> subprocess.Popen[bytes]:
        """Make its data; it may start when this has ended."""
        ports = {"CLIENTS": self.client, "CONTROLLER": self.controller, "SASL": self.sasl}
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        own = {"node.id": self.name, "listeners": listeners, "log.dirs": self.data}
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in (settings | own).items()))
        return self._run("kafka.tools.StorageTool", "format", "-c", str(self._settings), f"--cluster-id={cluster}")

    def start(self) -> None:
        self._process = self._run("kafka.Kafka", str(self._settings))
        RUNNING.add(self._process.pid)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            RUNNING.discard(self._process.pid)
            self._process = None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._java, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )


class Nodes:
    """A cluster of so many: with three, a topic has three replicas, two of which must be in sync."""

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        settings: Mapping[str, str] = MappingProxyType({}),
        java: tuple[str, ...] = SMALL,
    ) -> None:
        self.all = [Node(name, folder, java) for name in range(1, count + 1)]
        replicas, in_sync = str(count), str(count // 2 + 1)
        self._settings = SETTINGS | {
            "controller.quorum.voters": ",".join(node.voter for node in self.all),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            **settings,
        }
        self._formatted = False

    @property
    def servers(self) -> str:
        return ",".join(node.server for node in self.all)

    def start(self) -> None:
        """Start those that do not run."""
        if not self._formatted:
            cluster = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
            for node, run in [(node, node.format(self._settings, cluster)) for node in self.all]:
                assert run.wait() == 0, node.log
            self._formatted = True
        for node in self.all:
            if not node.runs:
                node.start()

    def stop(self) -> None:
        for node in self.all:
            node.kill()
