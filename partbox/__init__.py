"""The transactional outbox for PostgreSQL."""

from importlib.metadata import version

from partbox.errors import RetryAfterError, UnrecoverableError
from partbox.events import Event
from partbox.outbox import Outbox
from partbox.outcomes import Dead, Done, RetryAfter
from partbox.rules.hashing import partition_of

__all__ = [
    "Dead",
    "Done",
    "Event",
    "Outbox",
    "RetryAfter",
    "RetryAfterError",
    "UnrecoverableError",
    "__version__",
    "partition_of",
]

__version__ = version("partbox")
