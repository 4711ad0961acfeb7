"""Brokers of this machine for tests, each with its own ports and folder; what arrived is read by another client."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import ClassVar

import pytest
from waiting import eventually

from partbox_lab.chaos.network import HOST

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
    partition: int = 0  # of Kafka's topic


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
    many: ClassVar[int] = 20_000  # events, which it takes in a minute or two where nothing else runs
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


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
