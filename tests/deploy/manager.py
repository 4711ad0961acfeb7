"""A service manager as far as a service sees one: the socket that it says things to."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 120.0  # seconds


class Manager:
    """`heard` is all that was said so far, a dictionary a datagram."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.heard: list[dict[str, str]] = []

    def next(self, timeout: float = PATIENCE) -> dict[str, str] | None:
        """What is said next, None if nothing is in that time."""
        self._socket.settimeout(timeout)
        try:
            text = self._socket.recv(1 << 16).decode()
        except (TimeoutError, BlockingIOError):
            return None
        self.heard.append(dict(line.split("=", 1) for line in text.splitlines()))
        return self.heard[-1]

    def hear(self, name: str, value: str = "") -> dict[str, str]:
        """The next that says this, with that in its value."""
        until = time.monotonic() + PATIENCE
        while (said := self.next(max(0.0, until - time.monotonic()))) is not None:
            if value in said.get(name, ()):
                return said
        raise AssertionError(f"{name} was not said, only {self.heard}")

    def status(self, text: str) -> None:
        """Wait for this status, unless it is the one that was said last."""
        said = [each["STATUS"] for each in self.heard if "STATUS" in each]
        if not (said and text in said[-1]):
            self.hear("STATUS", text)

    def nothing_left(self) -> None:
        """Pass over what was said already."""
        while self.next(0) is not None:
            pass

    def close(self) -> None:
        self._socket.close()


@contextmanager
def manager(folder: Path) -> Iterator[Manager]:
    made = Manager(str(folder / "notify"))
    try:
        yield made
    finally:
        made.close()
