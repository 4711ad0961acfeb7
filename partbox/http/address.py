"""Addresses for HTTP: `127.0.0.1:9464`, `:9464` (this machine alone) or `[::1]:9464`; port 0 is any free one."""

import ipaddress
from typing import NamedTuple

from partbox.errors import PartboxError

LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """A host's name or number, without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it; of names, for localhost alone."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address(text: str) -> Address:
    """Parse `text`; a port alone is one of this machine. PartboxError if it is not an address."""
    host, colon, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_host = is_bracketed or not any(character in ":[]/@" or character.isspace() for character in host)
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65_535 or not is_host:
        raise PartboxError(f"HTTP address {text!r} must be HOST:PORT, such as {LOOPBACK}:9464, or :0 for a free port")
    return Address(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port))
