"""Addresses for HTTP, such as `127.0.0.1:9464`, `:9464` (this machine only) or `[::1]:9464`, and allowed host names."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from partbox.errors import PartboxError

LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """A network address: a host name or IP address, without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address (a loopback IP address or the name localhost)."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str) -> Address:
    """Parse HOST:PORT, or :PORT for this machine, as a network address. Raise PartboxError if the text is wrong."""
    # Port 0 is any free port.
    host, colon, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_host = is_bracketed or not any(character in ":[]/@" or character.isspace() for character in host)
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65_535 or not is_host:
        raise PartboxError(f"HTTP address {text!r} must be HOST:PORT, such as {LOOPBACK}:9464, or :0 for a free port")
    return Address(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port))


ANY = "*"
ELSEWHERE = (
    "metrics and health checks are not served under this host name: use an IP address, localhost or the name of this "
    "machine, or add the host name to the setting http_names\n"
)
# Domains that nobody can register.
_UNREGISTRABLE = (".localhost", ".local", ".internal", ".home.arpa", ".svc", ".test")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The host names under which a server answers requests. `*` allows all names."""

    # The names are in lower case without a final dot.

    hosts: frozenset[str] = frozenset()

    def is_allowed(self, host: str) -> bool:
        """Return True if a request with this `Host` header may be answered."""
        # Browsers always send the header.
        # A page on the internet can point its own name here (DNS rebinding) and then read, through a visitor's browser,
        # everything that the browser can reach. Only a name that an attacker can register is a danger. So a node also
        # answers to numbers, which kubelets and Prometheus's discovery use, to names without a dot, as in a cluster or
        # in /etc/hosts, and to domains that are never sold.
        if not host or ANY in self.hosts:
            return True
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name:
            return False
        name = _normalize_name(name)
        return _is_number(name) or "." not in name or name.endswith(_UNREGISTRABLE) or name in self.hosts


def build_allowed_hosts(bound: str, more: str | None) -> AllowedHosts:
    """Return the host names under which a server at the host `bound` answers requests."""
    # The name of this machine is allowed, too. `more` is the setting `http_names`, for other names of a service or a
    # proxy, separated by commas.
    candidates = (bound, socket.gethostname(), *(more or "").split(","))
    return AllowedHosts(frozenset(_normalize_name(each.strip()) for each in candidates if each.strip()))


def _normalize_name(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
