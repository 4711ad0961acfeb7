"""Decide whether an exception says that a handler's downstream service is away, so that it may open a circuit.

`DownstreamUnavailable` always says so, as do the exceptions that `parse_circuit` and `circuit_on` name. `OSError`,
which is among the defaults, stands for connections only."""

import builtins
import io
from pkgutil import resolve_name
from typing import Any

from partbox.errors import DownstreamUnavailable

DEPTH = 10  # exceptions of a chain that are examined
LOCAL_ERRORS = (
    ChildProcessError, FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError,
    ProcessLookupError, io.UnsupportedOperation,
)  # fmt: skip
# OSErrors of libraries that reached the server and got a refusal. Listed by name, so that nothing is imported.
ANSWER_ERRORS = frozenset(
    {
        "requests.exceptions.HTTPError",
        "smtplib.SMTPRecipientsRefused",
        "smtplib.SMTPResponseException",
        "urllib.error.HTTPError",
    }
)
CIRCUIT_GRAMMAR = 'use "off", or exception classes or their names, such as "OSError,httpx.TransportError"'

Errors = tuple[type[BaseException], ...]

# Python's own descriptors, because the attributes of an application's exception may return or raise anything.
cause_of, context_of, hides_context, members_of = (
    vars(BaseException)["__cause__"].__get__,
    vars(BaseException)["__context__"].__get__,
    vars(BaseException)["__suppress_context__"].__get__,
    vars(BaseExceptionGroup)["exceptions"].__get__,
)
_module, _qualname = vars(type)["__module__"].__get__, vars(type)["__qualname__"].__get__


class ErrorNames(tuple[type[BaseException] | str, ...]):
    """Exception classes, or their dotted names, which are imported only when a worker starts."""

    # A name may belong to a module of the application.

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(each if isinstance(each, str) else _name(each).removeprefix("builtins.") for each in self)

    def import_errors(self) -> Errors:
        """Import the named exceptions, and return all classes. Raise ValueError if a name is no exception class."""
        return tuple(_import_error(each) if isinstance(each, str) else each for each in self)


DEFAULT_ERRORS = ErrorNames(("OSError", "TimeoutError"))


def parse_error_names(value: Any) -> ErrorNames:
    """Parse a setting that lists exception classes or their names. Raise ValueError if it is invalid."""
    # The value is a class, a text with commas, or a list of classes and names.
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    errors = ErrorNames(each.strip() if isinstance(each, str) else each for each in given)
    if not errors or not all(map(_is_error, errors)):
        raise ValueError(CIRCUIT_GRAMMAR)
    return errors


def parse_circuit(value: Any) -> ErrorNames | None:
    """Parse a circuit breaker setting into the exceptions that open the circuit, or None for "off"."""
    # The value "on" stands for the defaults. ValueError is raised for a value that `parse_error_names` does not accept.
    if isinstance(value, str):
        value = {"off": False, "none": False, "on": True}.get(value.strip().lower(), value)
    if value is None or isinstance(value, bool):
        return DEFAULT_ERRORS if value else None
    return parse_error_names(value)


def is_outage(error: BaseException, errors: Errors) -> bool:
    """Return True if a handler's exception, or one of its causes, means that the downstream service is away."""
    # Client libraries wrap exceptions. The explicit cause of an exception therefore counts as well, and so does the
    # exception that was being handled when a library raised its own. A built-in exception, such as an accidental
    # KeyError in an `except` block, has to be raised `from` the other one.
    # `errors` are the exception classes that count.
    asked: BaseException | None = error
    for _ in range(DEPTH):
        if asked is None:
            return False
        # `__class__` is not used, because an application can set it to anything.
        kind = type(asked)
        if issubclass(kind, BaseExceptionGroup):
            return all(is_outage(each, errors) for each in members_of(asked))
        if issubclass(kind, DownstreamUnavailable) or _is_selected(kind, errors):
            return True
        # Only a library's own exception is followed to its context. A built-in exception raised in an `except` block is
        # more likely a mistake in the handler than a wrapper.
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
    # The result is True for an OSError class that is not about a connection: a local error of files or permissions, a
    # wrong argument, or an answer of the downstream that a client library raises as an OSError. An answer is excluded
    # because the event itself may be the cause.
    names = {_name(each) for each in kind.__mro__}
    if issubclass(kind, LOCAL_ERRORS) or not ANSWER_ERRORS.isdisjoint(names):
        return True
    # An expired certificate is an outage, although `ssl.CertificateError` is a ValueError.
    return issubclass(kind, ValueError) and "ssl.SSLError" not in names


def _is_error(value: object) -> bool:
    if isinstance(value, str):
        return all(part.isidentifier() for part in value.split("."))
    return isinstance(value, type) and issubclass(value, BaseException)


def _import_error(name: str) -> type[BaseException]:
    try:
        found = resolve_name(name) if "." in name else getattr(builtins, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be imported ({error}): {CIRCUIT_GRAMMAR}") from None
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise ValueError(f"{name!r} is no exception class: {CIRCUIT_GRAMMAR}")
    return found


def _name(kind: type) -> str:
    return f"{_module_of(kind)}.{_qualname(kind)}"


def _module_of(kind: type) -> str:
    module = _module(kind)
    return module if type(module) is str else ""
