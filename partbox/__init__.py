"""The transactional outbox for PostgreSQL. Each public name is imported on first use, because `partbox --version` and
the first second of a command need few of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partbox.errors import (
        DownstreamUnavailable,
        NewerVersionError,
        PartboxError,
        PayloadError,
        PublishError,
        RecoverableError,
        RegistrationError,
        RetryAfterError,
        SchemaError,
        SettingsError,
        UnrecoverableError,
        UnroutableError,
    )
    from partbox.events import DeliveredEvent, Event
    from partbox.events.declaration import event
    from partbox.outbox import Outbox
    from partbox.outcomes import Dead, Done, Ignore, RetryAfter
    from partbox.protocol.hashing import partition_of
    from partbox.protocol.retry import Exponential, Fixed, Jittered
    from partbox.tasks import supplied

    __version__: str

# The modules of the names in `__all__`. All other names are errors.
_HOMES = {
    "events": ("DeliveredEvent", "Event"),
    "events.declaration": ("event",),
    "outbox": ("Outbox",),
    "outcomes": ("Dead", "Done", "Ignore", "RetryAfter"),
    "protocol.hashing": ("partition_of",),
    "protocol.retry": ("Exponential", "Fixed", "Jittered"),
    "tasks": ("supplied",),
}

__all__ = [
    "Dead",
    "DeliveredEvent",
    "Done",
    "DownstreamUnavailable",
    "Event",
    "Exponential",
    "Fixed",
    "Ignore",
    "Jittered",
    "NewerVersionError",
    "Outbox",
    "PartboxError",
    "PayloadError",
    "PublishError",
    "RecoverableError",
    "RegistrationError",
    "RetryAfter",
    "RetryAfterError",
    "SchemaError",
    "SettingsError",
    "UnrecoverableError",
    "UnroutableError",
    "__version__",
    "event",
    "partition_of",
    "supplied",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("partbox")
    elif name in __all__:
        home = next((home for home, names in _HOMES.items() if name in names), "errors")
        found = getattr(_import_home(f"partbox.{home}"), name)
    else:
        return _import_public_module(name)
    globals()[name] = found
    return found


def _import_home(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        from partbox.platform import describe_missing

        if (line := describe_missing(error)) is None:
            raise
        raise ImportError(line) from None


def _import_public_module(name: str) -> Any:
    """Import a public module of partbox on first access. Raise AttributeError for an unknown name."""
    missing = f"partbox.{name}"
    try:
        if not name.startswith("_"):
            return import_module(missing)
    except ModuleNotFoundError as error:
        if error.name != missing:
            raise
    raise AttributeError(f"module 'partbox' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
