"""One node: its worker processes and their membership. What is asked for is imported then: a flag needs no process."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partbox.supervisor.embedded import EmbeddedWorker
    from partbox.supervisor.purging import Purging
    from partbox.supervisor.running import run
    from partbox.supervisor.supervisor import Supervisor

__all__ = ["EmbeddedWorker", "Purging", "Supervisor", "run"]

_HOMES = {"EmbeddedWorker": "embedded", "Purging": "purging", "Supervisor": "supervisor", "run": "running"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'partbox.supervisor' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
