"""The transactional outbox for PostgreSQL."""

from importlib.metadata import version

from partbox.errors import (
    DownstreamUnavailable,
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
from partbox.outbox import Outbox
from partbox.outcomes import Dead, Done, Ignore, RetryAfter
from partbox.rules.hashing import partition_of
from partbox.rules.retry import Exponential, Fixed, Jittered

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
    "partition_of",
]

__version__ = version("partbox")
