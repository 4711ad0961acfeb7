"""Which errors say that what a handler calls is away, and the forms in which an application names more of them."""

import asyncio
import concurrent.futures
import io
import smtplib
import socket
import ssl
import urllib.error

import httpx
import pytest
import redis

from partbox.errors import DownstreamUnavailable, RecoverableError
from partbox.protocol import outage
from partbox.protocol.outage import DEFAULT_ERRORS, DEPTH, ErrorNames, is_outage

OURS = DEFAULT_ERRORS.import_errors()


class GatewayDown(OSError):
    """An application's own."""


# As the library has them, which no test needs otherwise.
RequestError = type("RequestException", (OSError,), {"__module__": "requests.exceptions"})
HTTPError = type("HTTPError", (RequestError,), {"__module__": "requests.exceptions"})
InvalidURL = type("InvalidURL", (RequestError, ValueError), {"__module__": "requests.exceptions"})
ConnectTimeout = type("ConnectTimeout", (RequestError,), {"__module__": "requests.exceptions"})


class OrderFailed(Exception):
    """An application's own, which says nothing by its class."""


def from_(error: BaseException, cause: BaseException | None) -> BaseException:
    """As by `raise error from cause`."""
    try:
        raise error from cause
    except BaseException as raised:
        return raised


def while_handling(error: BaseException, handled: BaseException) -> BaseException:
    """As by `raise error` in an `except` block."""
    try:
        try:
            raise handled
        except BaseException:
            raise error  # noqa: B904 - that is the point
    except BaseException as raised:
        return raised


REFUSED = ConnectionRefusedError(111, "refused")
AWAY = [
    DownstreamUnavailable("down"),
    REFUSED,
    ConnectionResetError(),
    BrokenPipeError(),
    TimeoutError("late"),
    concurrent.futures.TimeoutError(),
    socket.gaierror(-2, "no such name"),
    ssl.SSLError("closed"),
    ssl.SSLCertVerificationError("over"),
    OSError(113, "no route to host"),
    OSError("the mail server is away"),
    GatewayDown("away"),
    ConnectTimeout(),
    smtplib.SMTPServerDisconnected("closed"),
    urllib.error.URLError("refused"),
    from_(OrderFailed("no answer"), REFUSED),
    from_(KeyError("no answer"), from_(OrderFailed(), TimeoutError())),
    from_(RecoverableError("again"), REFUSED),
    from_(FileNotFoundError(), REFUSED),
    while_handling(OrderFailed("no answer"), REFUSED),
    while_handling(redis.ConnectionError("no answer"), REFUSED),
    from_(httpx.ConnectError("refused"), REFUSED),
    ExceptionGroup("both", [REFUSED, ExceptionGroup("one", [TimeoutError()])]),
]
OTHERS = [
    KeyError("card"),
    ValueError("broken"),
    RecoverableError("again"),
    SystemExit(1),
    asyncio.CancelledError(),
    OrderFailed("no card"),
    FileNotFoundError(2, "no template"),
    FileExistsError(),
    IsADirectoryError(),
    NotADirectoryError(),
    PermissionError(13, "not ours"),
    ProcessLookupError(),
    ChildProcessError(),
    io.UnsupportedOperation("read"),
    HTTPError("404 Not Found"),
    InvalidURL("no host"),
    urllib.error.HTTPError("http://shop", 500, "no", None, None),  # type: ignore[arg-type]
    smtplib.SMTPRecipientsRefused({}),
    smtplib.SMTPSenderRefused(550, b"no", "ada@example.org"),
    while_handling(KeyError("a mistake"), REFUSED),
    from_(while_handling(OrderFailed("no card"), REFUSED), None),
    ExceptionGroup("one is ours", [REFUSED, KeyError("card")]),
]


def shown(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__name__}"


@pytest.mark.parametrize("error", AWAY, ids=shown)
def test_a_connection_or_a_timeout_says_that_the_downstream_is_away_wrapped_or_not(error):
    assert is_outage(error, OURS)


@pytest.mark.parametrize("error", OTHERS, ids=shown)
def test_any_other_error_says_nothing_of_the_downstream(error):
    assert not is_outage(error, OURS)


@pytest.mark.parametrize(
    "more", [OrderFailed, (OrderFailed,), [f"{__name__}.OrderFailed"], f" {__name__}.OrderFailed "]
)
def test_a_named_error_means_an_outage_and_so_do_its_subclasses_and_what_is_raised_from_it(more):
    class CardRefused(OrderFailed): ...

    errors = ErrorNames((*DEFAULT_ERRORS, *outage.parse_error_names(more))).import_errors()
    for error in (OrderFailed(), CardRefused(), from_(KeyError(), OrderFailed()), REFUSED):
        assert is_outage(error, errors)
    assert not is_outage(KeyError(), errors)
    assert not is_outage(FileNotFoundError(), errors)


def test_an_error_excluded_from_the_default_ones_means_an_outage_where_it_is_named():
    assert is_outage(
        FileNotFoundError(), ErrorNames((*DEFAULT_ERRORS, *outage.parse_error_names(FileNotFoundError))).import_errors()
    )


def test_the_default_errors_do_not_count_where_only_others_are_named():
    errors = outage.parse_error_names("KeyError, httpx.ConnectError").import_errors()
    assert is_outage(KeyError(), errors)
    assert is_outage(httpx.ConnectError(""), errors)
    assert not is_outage(ConnectionError(), errors)


def test_the_search_through_a_circular_or_long_chain_of_causes_ends():
    one, other = OrderFailed(), OrderFailed()
    one.__cause__, other.__cause__ = other, one
    assert not is_outage(one, OURS)
    chain: BaseException = REFUSED
    for _ in range(DEPTH):
        chain = from_(OrderFailed(), chain)
    assert not is_outage(chain, OURS)
    assert is_outage(chain.__cause__, OURS)  # type: ignore[arg-type]


@pytest.mark.parametrize("off", ["off", " OFF", "none", False, None])
def test_a_circuit_can_be_off(off):
    assert outage.parse_circuit(off) is None


@pytest.mark.parametrize("on", ["on", True])
def test_a_circuit_that_is_on_takes_the_usual_errors(on):
    assert outage.parse_circuit(on) == DEFAULT_ERRORS


@pytest.mark.parametrize("wrong", ["", "a b", "http-x.Error", 5, int, (), [5], object()])
def test_a_setting_that_names_no_error_is_refused(wrong):
    with pytest.raises(ValueError, match='use "off", or exception classes or their names'):
        outage.parse_circuit(wrong)


@pytest.mark.parametrize("name", ["Nothing", "httpx.Nothing", "nothing.Error", "len", "json.dumps"])
def test_a_name_that_is_no_exception_is_refused_when_it_is_needed(name):
    with pytest.raises(ValueError, match=f"'{name}' "):
        outage.parse_error_names(name).import_errors()
