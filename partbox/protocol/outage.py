"""Tells an outage of what a handler calls from a failure of its event: the errors that may open a circuit.

`DownstreamUnavailable` says so itself, and so do the errors that `circuit` and `circuit_on` name. `OSError`, one of the
default, stands for connections alone: files and permissions are excluded, and so is an answer that a client library
raises as an OSError, because the event may well be their reason.

Client libraries wrap errors. So the error that another was raised *from* counts as well, and the one that was being
handled when a library's own error was raised. A built-in error, such as a KeyError by mistake in an `except` block,
must be raised `from` it.
"""

import io
from pkgutil import resolve_name
from typing import Any

from partbox.errors import DownstreamUnavailable

DEPTH = 10  # errors of a chain that are looked at
LOCAL_ERRORS = (
    ChildProcessError, FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError,
    ProcessLookupError, io.UnsupportedOperation,
)  # fmt: skip
ANSWER_ERRORS = frozenset(
    {
        "requests.exceptions.HTTPError",
        "smtplib.SMTPRecipientsRefused",
        "smtplib.SMTPResponseException",
        "urllib.error.HTTPError",
    }
)
"""OSErrors of libraries that were reached and said no; by name, so that nothing is imported."""
CIRCUIT_GRAMMAR = 'use "off", or exception classes or their names, such as "OSError,httpx.TransportError"'

Errors = tuple[type[BaseException], ...]

# The attributes that Python itself keeps: an application's error may answer anything to whoever asks it, or raise.
cause_of, context_of, hides_context, members_of = (
    vars(BaseException)["__cause__"].__get__,
    vars(BaseException)["__context__"].__get__,
    vars(BaseException)["__suppress_context__"].__get__,
    vars(BaseExceptionGroup)["exceptions"].__get__,
)
_module, _qualname = vars(type)["__module__"].__get__, vars(type)["__qualname__"].__get__


class ErrorNames(tuple[type[BaseException] | str, ...]):
    """Exception classes, or their dotted names until a worker starts: they may be in the application's modules."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(each if isinstance(each, str) else _name(each).removeprefix("builtins.") for each in self)

    def found(self) -> Errors:
        """The classes; ValueError for a name that is none of an exception class."""
        return tuple(_import_error(each) if isinstance(each, str) else each for each in self)


DEFAULT_ERRORS = ErrorNames(("OSError", "TimeoutError"))


def parse_error_names(value: Any) -> ErrorNames:
    """The errors that a value names: a class, a text with commas, or several of these; ValueError."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    errors = ErrorNames(each.strip() if isinstance(each, str) else each for each in given)
    if not errors or not all(map(_is_error, errors)):
        raise ValueError(CIRCUIT_GRAMMAR)
    return errors


def circuit(value: Any) -> ErrorNames | None:
    """The errors that open a circuit, as `parse_error_names` reads them; None for "off", the usual ones for "on".
    ValueError."""
    if isinstance(value, str):
        value = {"off": False, "none": False, "on": True}.get(value.strip().lower(), value)
    if value is None or isinstance(value, bool):
        return DEFAULT_ERRORS if value else None
    return parse_error_names(value)


def is_outage(error: BaseException, errors: Errors) -> bool:
    """True if the error, or what it was raised from, says that the downstream is away."""
    asked: BaseException | None = error
    for _ in range(DEPTH):
        if asked is None:
            return False
        kind = type(asked)  # not its __class__, which may say anything
        if issubclass(kind, BaseExceptionGroup):
            return all(is_outage(each, errors) for each in members_of(asked))
        if issubclass(kind, DownstreamUnavailable) or _is_selected(kind, errors):
            return True
        wrapped = None if hides_context(asked) or _module_of(kind) == "builtins" else context_of(asked)
        cause = cause_of(asked)
        asked = wrapped if cause is None else cause
    return False


def _is_selected(kind: type[BaseException], errors: Errors) -> bool:
    if not issubclass(kind, errors):
        return False
    chosen = tuple(each for each in errors if each is not OSError)
    return issubclass(kind, (*chosen, ConnectionError)) or not _is_answer(kind)


def _is_answer(kind: type[BaseException]) -> bool:
    """True for an OSError of something else than a connection: local, a wrong argument, or the downstream's answer."""
    names = {_name(each) for each in kind.__mro__}
    if issubclass(kind, LOCAL_ERRORS) or not ANSWER_ERRORS.isdisjoint(names):
        return True
    return issubclass(kind, ValueError) and "ssl.SSLError" not in names  # a certificate that is over is an outage


def _is_error(value: object) -> bool:
    if isinstance(value, str):
        return all(part.isidentifier() for part in value.split("."))
    return isinstance(value, type) and issubclass(value, BaseException)


def _import_error(name: str) -> type[BaseException]:
    try:
        found = resolve_name(name if "." in name else f"builtins.{name}")
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be imported ({error}): {CIRCUIT_GRAMMAR}") from None
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise ValueError(f"{name!r} is no exception class: {CIRCUIT_GRAMMAR}")
    return found


def _name(kind: type) -> str:
    return f"{_module_of(kind)}.{_qualname(kind)}"


def _module_of(kind: type) -> str:
    """The module of a class; none where it is no text."""
    module = _module(kind)
    return module if type(module) is str else ""
