"""The transactional outbox for PostgreSQL."""

from importlib.metadata import version

from partbox.errors import DownstreamUnavailable, RetryAfterError, UnrecoverableError
from partbox.events import Event
from partbox.outbox import Outbox
from partbox.outcomes import Dead, Done, Ignore, RetryAfter
from partbox.rules.hashing import partition_of

__all__ = [
    "Dead",
    "Done",
    "DownstreamUnavailable",
    "Event",
    "Ignore",
    "Outbox",
    "RetryAfter",
    "RetryAfterError",
    "UnrecoverableError",
    "__version__",
    "partition_of",
]

__version__ = version("partbox")
