"""The socket for notices to a service manager: the protocol of sd_notify(3), one datagram a message.

Our own, because it is a dozen lines, and the libraries for it are either unmaintained or bind libsystemd in C.
"""

import os
import socket
from collections.abc import MutableMapping

MOST = 1_000  # characters of a value


class NotifySocket:
    """`address` is a path, or "@name" of the abstract namespace; a sign of life is due every `watchdog` seconds."""

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.watchdog = watchdog

    def send(self, **said: str) -> bool:
        """True if it was taken. Never waits, and the same can be said again. A value is one line."""
        lines = [f"{name}={' '.join(value.split())[:MOST]}" for name, value in said.items()]
        try:
            self._socket.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError:  # it is full, or its reader is away for a moment
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def taken(environ: MutableMapping[str, str]) -> NotifySocket | None:
    """The socket that this process was given, if any. What names it is removed, so that no process that is started from
    here, nor a handler in one, speaks for the service."""
    address, within, of = (environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
    if not address.startswith(("/", "@")):
        return None
    mine = not of or of == str(os.getpid())
    return NotifySocket(address, int(within) / 1e6 if mine and within.isdecimal() and int(within) else None)
