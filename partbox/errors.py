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
    """The error raised if a setting of partbox is unknown or invalid."""


class RegistrationError(PartboxError):
    """The error raised if a handler cannot be registered.

    The handler is a duplicate, is not callable, or has a wrong option."""


class PublishError(PartboxError):
    """The error raised if an event was not published: it was refused, or its transaction was rolled back.

    A refusal comes before anything is written."""


class SchemaError(PartboxError):
    """The error raised if the schema in the database does not fit this version of partbox.

    The message names the remedy."""


class RecoverableError(PartboxError):
    """An error that a handler raises to have the event retried.

    It means that another attempt may succeed."""


class RetryAfterError(RecoverableError):
    """An error that a handler raises to have the event retried after `delay`.

    The delay has the forms that `RetryAfter` takes. The try counts as an attempt."""

    def __init__(self, delay: float | timedelta | str | datetime, message: str = "") -> None:
        seconds = seconds_until(delay)
        self.delay = seconds
        super().__init__(message or f"retry after {seconds:g} s")


class DownstreamUnavailable(RecoverableError):
    """An error that a handler raises if the system that it calls is down.

    Other events would fail too."""


class UnrecoverableError(PartboxError):
    """An error that a handler raises to give up an event at once, without further attempts.

    No further attempt can succeed, and the event is dead."""


class PayloadError(UnrecoverableError):
    """The error raised if an event's payload cannot be decoded or does not fit the requested model."""


class UnroutableError(UnrecoverableError):
    """The error recorded for an event that has no handler."""


class NewerVersionError(UnroutableError):
    """The error raised if an event has a newer version than the payload class here, as in a rolling deploy.

    `payload_as` raises it, also for a handler that asks for the class. It is not a failure of the handler: the event
    waits for the newer code, unless `on_unroutable` is "dead" or a function."""
