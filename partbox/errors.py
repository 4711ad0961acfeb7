"""Every error that partbox raises on purpose.

PartboxError
├── SettingsError         a setting is unknown or invalid
├── RegistrationError     a handler cannot be registered
├── PublishError          nothing was written: an event was refused, or its transaction rolled back
├── SchemaError           the database is not as this version needs it
├── RecoverableError      raised by a handler: try again
│   ├── RetryAfterError       ... after this delay
│   └── DownstreamUnavailable ... when the downstream is back
└── UnrecoverableError    raised by a handler: never try again
    ├── PayloadError          the payload cannot be decoded
    └── UnroutableError       no handler takes the event
        └── NewerVersionError     ... for its version is newer than that of the class here
"""

from datetime import datetime, timedelta

from partbox.duration import seconds_until


class PartboxError(Exception):
    """Root of the tree: `except PartboxError` catches everything partbox raises on purpose."""


class SettingsError(PartboxError):
    """A setting is unknown or invalid."""


class RegistrationError(PartboxError):
    """A handler cannot be registered: duplicate, not callable, or a wrong option."""


class PublishError(PartboxError):
    """An event was refused before anything was written, or the transaction it was in was rolled back."""


class SchemaError(PartboxError):
    """The database is not as this version needs it; the message names the remedy."""


class RecoverableError(PartboxError):
    """Raised by a handler: the event is worth another attempt."""


class RetryAfterError(RecoverableError):
    """Raised by a handler: try again after `delay`, in the forms that `RetryAfter` takes; counts as an attempt."""

    def __init__(self, delay: float | timedelta | str | datetime, message: str = "") -> None:
        seconds = seconds_until(delay)
        self.delay = seconds
        super().__init__(message or f"retry after {seconds:g} s")


class DownstreamUnavailable(RecoverableError):
    """Raised by a handler: what it calls is down, and other events would fail too."""


class UnrecoverableError(PartboxError):
    """Raised by a handler: no further attempt can help; the event is dead at once."""


class PayloadError(UnrecoverableError):
    """The payload cannot be decoded or does not fit the model asked for."""


class UnroutableError(UnrecoverableError):
    """No handler takes the event."""


class NewerVersionError(UnroutableError):
    """The event is of a newer version than the class here, as in a rolling deploy.

    `payload_as` raises it, for a handler that asks for the class too. It is no failure of the handler: the event waits
    for the newer code, unless `on_unroutable` is set to "dead" or a function.
    """
