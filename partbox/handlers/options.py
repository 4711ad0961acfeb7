"""The options of a handler, and their checks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from partbox.duration import seconds
from partbox.errors import RegistrationError
from partbox.handlers.transactional import ALLOWED_VALUES, Transactional, is_transactional
from partbox.outcomes import Advice
from partbox.protocol import outage
from partbox.protocol.limits import By, rate_of
from partbox.protocol.retry import RetryPolicy, policy_of
from partbox.text.wording import format_hint

Blocking = Literal["block", "continue"]
OnError = Callable[[Any, BaseException, int], Advice]
# A text may hold several names, separated by commas.
CircuitErrors = type[BaseException] | str | Sequence[type[BaseException] | str]


class Options(TypedDict, total=False):
    """The keyword options that a handler can be registered with. Options that are left out follow the settings.

    `on_error(event, error, attempt)` is called before the retry policy; it returns `Done`, `Ignore`, `RetryAfter`,
    `Dead`, or None to let the policy decide. A `transactional` handler takes `(event, connection)`, with "sqlalchemy"
    `(event, session)`, with "django" only the event. `circuit` is "off", or the errors that say that the downstream of
    the handler is away; `circuit_on` adds errors to the setting.

    `rate` limits how many calls of the handler start, `at_once` how many run at the same time, in all processes of the
    subscription together. With `limit_by` both limits apply to each value of it, and values take turns. A function as
    `limit_by` returns a str, int, bool, UUID, Enum, None, or a tuple of such values. For any other value, and if the
    function fails, the value is None. The function is called once for each event that is read, by the threads that run
    handlers, so it must be quick. One call of a batch handler is one list, whose events have the same value. A
    transactional handler has no limits.

    `circuit_by` takes the same forms, and gives each value a circuit of its own: a customer whose endpoint is away
    holds up no other customer."""

    name: str  # for logs, metrics and `partbox handlers`; by default module and function
    retry: RetryPolicy | str
    max_attempts: int | None  # calls including the first; None for no limit
    on_failure: Blocking
    on_dead: Blocking
    timeout: float | str | None  # seconds, or "5m"; None for no timeout
    on_error: OnError | None
    transactional: Transactional
    circuit: CircuitErrors | bool
    circuit_on: CircuitErrors
    rate: str  # "100/s", "6000/m", "5/h"
    at_once: int
    limit_by: (
        By  # "tenant_id", "aggregate_id", "event_type", "aggregate_type", a header's name, or a function of the event
    )
    circuit_by: By


def check_options(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the given handler options with checked values. Raise RegistrationError if one is wrong or unknown."""
    # `name` is left out of the result.
    # None counts as not given, unless None is a value of the option.
    found = {}
    for option, value in options.items():
        if option not in Options.__annotations__:
            suggestion = format_hint(option, Options.__annotations__)
            raise RegistrationError(f"{where} has an unknown option {option!r}: {suggestion}")
        if option != "name" and (value is not None or option in ("max_attempts", "timeout")):
            try:
                found[option] = _CHECKS[option](value)
            except ValueError as error:
                raise RegistrationError(f"{option} of {where} cannot be {value!r}: {error}") from None
    return found


def check_batch_size(value: Any, where: str) -> int:
    """Return the maximum size of a batch. Raise RegistrationError unless it is a whole number from 1."""
    # The size is the length of the list that a batch handler gets.
    if type(value) is int and value >= 1:
        return value
    raise RegistrationError(f"max_size of {where} cannot be {value!r}: give a whole number from 1")


def _check_timeout(value: Any) -> float | None:
    if value is None or seconds(value) > 0:
        return value if value is None else seconds(value)
    raise ValueError("give more than 0 seconds, or None for no timeout")


def _build_check(is_valid: Callable[[Any], bool], form: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if is_valid(value):
            return value
        raise ValueError(form)

    return check


_check_division = _build_check(
    lambda value: callable(value) or (isinstance(value, str) and bool(value)),
    'give "tenant_id", "aggregate_id", "event_type", "aggregate_type", a header\'s name, or a function of the event',
)
_blocking = _build_check(lambda value: value in ("block", "continue"), "use 'block' or 'continue'")
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "retry": policy_of,
    "max_attempts": _build_check(
        lambda value: value is None or (type(value) is int and value >= 1),
        "give a whole number from 1, or None for no limit",
    ),
    "on_failure": _blocking,
    "on_dead": _blocking,
    "timeout": _check_timeout,
    "on_error": _build_check(callable, "give a function of (event, error, attempt)"),
    "transactional": _build_check(is_transactional, ALLOWED_VALUES),
    "circuit": outage.parse_circuit,
    "circuit_on": outage.parse_error_names,
    "rate": rate_of,
    "at_once": _build_check(lambda value: type(value) is int and value >= 1, "give a whole number from 1"),
    "limit_by": _check_division,
    "circuit_by": _check_division,
}
