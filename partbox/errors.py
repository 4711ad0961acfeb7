"""All errors that partbox raises deliberately.

PartboxError
├── SettingsError               a setting is unknown or invalid
├── RegistrationError           a handler cannot be registered
├── PublishError                nothing was written: an event was refused, or its transaction rolled back
├── SchemaError                 the database does not fit this version
├── RecoverableError            raised by a handler: try again
│   ├── RetryAfterError         ... after this delay
│   └── DownstreamUnavailable   ... when the downstream is back
└── UnrecoverableError          raised by a handler: never try again
    ├── PayloadError            the payload cannot be decoded
    └── UnroutableError         no handler takes the event
        └── NewerVersionError   ... because its version is newer than that of the class here
"""

from datetime import datetime, timedelta

from partbox.duration import seconds_until


class PartboxError(Exception):
    """The base class of all errors that partbox raises deliberately."""


class SettingsError(PartboxError):
    """A setting is unknown or invalid."""


class RegistrationError(PartboxError):
    """A handler cannot be registered: it is a duplicate, is not callable, or has a wrong option."""


class PublishError(PartboxError):
    """An event was refused before anything was written, or its transaction was rolled back."""


class SchemaError(PartboxError):
    """The database does not fit this version of partbox. The message names the remedy."""


class RecoverableError(PartboxError):
    """Raised by a handler: another attempt at the event may succeed."""


class RetryAfterError(RecoverableError):
    """Raised by a handler: try again after `delay`, in the forms that `RetryAfter` takes. The try counts as an
    attempt."""

    def __init__(self, delay: float | timedelta | str | datetime, message: str = "") -> None:
        seconds = seconds_until(delay)
        self.delay = seconds
        super().__init__(message or f"retry after {seconds:g} s")


class DownstreamUnavailable(RecoverableError):
    """Raised by a handler: the system that it calls is down, and other events would fail too."""


class UnrecoverableError(PartboxError):
    """Raised by a handler: no further attempt can succeed, and the event is dead at once."""


class PayloadError(UnrecoverableError):
    """The payload cannot be decoded, or does not fit the requested model."""


class UnroutableError(UnrecoverableError):
    """No handler takes the event."""


class NewerVersionError(UnroutableError):
    """The event has a newer version than the class here, as happens in a rolling deploy. `payload_as` raises it, also
    for a handler that asks for the class. The error does not count as a failure of the handler: the event waits for the
    newer code, unless `on_unroutable` is "dead" or a function."""
