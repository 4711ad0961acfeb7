"""All errors that partbox raises deliberately."""

from datetime import datetime, timedelta

from partbox.duration import seconds_until


class PartboxError(Exception):
    """The base class of all errors that partbox raises deliberately."""


class SettingsError(PartboxError):
    """The error raised if a setting of partbox is unknown or invalid."""


class RegistrationError(PartboxError):
    """The error raised if a handler cannot be registered: it is a duplicate, not callable, or has a wrong option."""


class PublishError(PartboxError):
    """The error raised if an event was not published, because it was refused or its transaction was rolled back.

    A refusal comes before anything is written."""


class SchemaError(PartboxError):
    """The error raised if the schema in the database does not fit this version of partbox.

    The message names the remedy."""


class RecoverableError(PartboxError):
    """An error that a handler raises to have the event retried, because another attempt may succeed."""


class RetryAfterError(RecoverableError):
    """An error that a handler raises to have the event retried after `delay`.

    The delay has the forms that `RetryAfter` takes. The try counts as an attempt."""

    def __init__(self, delay: float | timedelta | str | datetime, message: str = "") -> None:
        seconds = seconds_until(delay)
        self.delay = seconds
        super().__init__(message or f"retry after {seconds:g} s")


class DownstreamUnavailable(RecoverableError):
    """An error that a handler raises if the system that it calls is down, so that other events would fail too."""


class UnrecoverableError(PartboxError):
    """An error that a handler raises to make the event dead at once, because no further attempt can succeed."""


class PayloadError(UnrecoverableError):
    """The error raised if an event's payload cannot be decoded or does not fit the requested model."""


class UnroutableError(UnrecoverableError):
    """The error recorded for an event that has no handler."""


class NewerVersionError(UnroutableError):
    """The error raised if an event has a newer version than the payload class in this process.

    That happens in a rolling deploy. It is not a failure of the handler: the event waits for newer code, unless
    `on_unroutable` is "dead" or a function."""
