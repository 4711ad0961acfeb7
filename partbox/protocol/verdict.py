"""The verdict on an event that is not done: a next attempt with or without a charge, or dead."""

import re
from dataclasses import dataclass, field
from typing import Protocol

from partbox.errors import PayloadError, RetryAfterError, UnrecoverableError, UnroutableError
from partbox.outcomes import Advice, Dead, Done, Ignore, RetryAfter
from partbox.protocol.parking import RowState
from partbox.protocol.retry import RetryPolicy, delay_of
from partbox.text.printing import format_error_name, text_of
from partbox.text.secrets import mask_secrets

# The event cannot be decoded, or nobody takes it. Another attempt would end in the same way, so none is made or
# counted.
UNCHARGED_ERRORS = (PayloadError, UnroutableError)
MAX_DELAY = 36_500 * 86_400.0  # seconds; publishing has the same limit
FALLBACK_DELAY = 60.0  # seconds until the next attempt if a retry policy itself fails

# The `repr` of an event, which is removed from stored errors, because the row of the error already names the event.
_EVENT = re.compile(r"""DeliveredEvent\((?:'[^'\n]*+'|"[^"\n]*+"), id=\d{1,20}, [^\n]{0,1500}?, attempt=\d{1,10}\)""")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on an event that is not done, such as a retry, a later time, or dead."""

    # `attempts` counts the charged attempts so far. `delay` is in seconds, and None if the event never becomes due by
    # itself. `error` is the reason. `policy_error` is an error of the application's retry policy, in place of which
    # `FALLBACK_DELAY` applied. `trace` is the traceback of the handler's error, and None if the application raised
    # nothing. `is_wait` means that the event did not run, so that `error` replaces no earlier error. `waits` means that
    # the event waits for a permit or a time, and nothing is wrong. `seconds` is the handler's running time.

    state: RowState
    attempts: int
    delay: float | None
    blocks: bool
    error: str | None
    policy_error: BaseException | None = None
    trace: str | None = None
    is_wait: bool = False
    waits: bool = field(default=False, compare=False)
    seconds: float | None = field(default=None, compare=False)

    @property
    def outcome(self) -> str | None:
        """The outcome of a failed attempt, "dead" or "failed", or None if no attempt has failed."""
        # The text is stored in the table `attempt`.
        if self.state is RowState.DEAD:
            return "dead"
        failed = self.state is RowState.RETRYING or (self.state is RowState.DEFERRED and self.seconds is not None)
        return "failed" if failed else None


class FailurePolicy(Protocol):
    """A handler's options for failures: retries, most attempts, and whether a failed or dead event blocks its key."""

    @property
    def retry(self) -> RetryPolicy: ...
    @property
    def max_attempts(self) -> int | None: ...
    @property
    def on_failure(self) -> str: ...
    @property
    def on_dead(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Deferral:
    """A request to delay an event without counting an attempt, for example because its handler is missing."""

    # Another reason is an open circuit. `is_wait` means that the event was not handed over, so an earlier error stays
    # its last error. `waits` means that the event waits for its turn, and nothing is wrong with it.

    delay: float
    reason: str
    is_wait: bool = False
    waits: bool = False


def judge_result(
    policy: FailurePolicy, attempts: int, result: object, limit: int, advice: Advice = None, text: str | None = None
) -> Verdict | None:
    """Decide what happens to an event after its handler returned or raised `result`. None means that it is done."""
    # There were `attempts` earlier attempts. `advice` is the answer of the handler's `on_error` to an exception. At
    # most `limit` characters of an error's text are kept. `text` is the description of an exception, if it is there
    # already.
    match result:
        case None | Done():
            return None
        case RetryAfter(delay=delay):
            try:
                seconds = min(delay_of(delay), MAX_DELAY)
            except BaseException as wrong:
                # The application may have changed the delay after creating the outcome.
                return _failure_verdict(policy, attempts, wrong, limit, describe(wrong, limit))
            return Verdict(RowState.DEFERRED, attempts, seconds, policy.on_failure == "block", None, waits=True)
        case Deferral(delay=delay, reason=reason, is_wait=is_wait, waits=waits):
            blocks, text = policy.on_failure == "block", make_storable(reason, limit)
            return Verdict(RowState.DEFERRED, attempts, delay, blocks, text, is_wait=is_wait, waits=waits)
        case Dead(reason=reason):
            return _dead_verdict(
                policy, attempts + 1, None if reason is None else make_storable(text_of(reason), limit)
            )
        case BaseException():
            text = describe(result, limit) if text is None else text
            return _follow_advice(policy, attempts, result, limit, advice, text)
    error = build_outcome_error(result)
    return _failure_verdict(policy, attempts, error, limit, describe(error, limit))


def build_outcome_error(result: object) -> TypeError:
    """Return the TypeError that explains that a handler returned an object of a wrong type."""
    return TypeError(f"a handler may return None, Done, RetryAfter or Dead, not {type(result).__name__}")


def _follow_advice(
    policy: FailurePolicy, attempts: int, error: BaseException, limit: int, advice: Advice, text: str
) -> Verdict | None:
    match advice:
        case Done() | Ignore():
            return None
        case Dead(reason=reason):
            return _dead_verdict(
                policy, attempts + 1, text if reason is None else make_storable(text_of(reason), limit)
            )
        case RetryAfter(delay=delay):
            return _retry_after(policy, attempts + 1, error, delay, limit, text)
    return _failure_verdict(policy, attempts, error, limit, text)


def _retry(
    policy: FailurePolicy, attempts: int, delay: float, text: str, policy_error: BaseException | None = None
) -> Verdict:
    # The verdict schedules another attempt, or is dead if no attempt is left. `delay` comes from `delay_of`.
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return _dead_verdict(policy, attempts, text)
    return Verdict(RowState.RETRYING, attempts, min(delay, MAX_DELAY), policy.on_failure == "block", text, policy_error)


def _retry_after(
    policy: FailurePolicy, attempts: int, error: BaseException, delay: object, limit: int, text: str
) -> Verdict:
    # The event is retried after the delay that the application asked for. If `delay` is not a delay, the retry policy
    # decides.
    try:
        seconds = delay_of(delay)
    except BaseException as wrong:
        text = make_storable(f"{text}; and its delay is invalid: {describe(wrong, limit)}", limit)
        return _ask_policy(policy, attempts, error, limit, text)
    return _retry(policy, attempts, seconds, text)


def _dead_verdict(policy: FailurePolicy, attempts: int, reason: str | None) -> Verdict:
    return Verdict(RowState.DEAD, attempts, None, policy.on_dead == "block", reason)


def _failure_verdict(policy: FailurePolicy, attempts: int, error: BaseException, limit: int, text: str) -> Verdict:
    if isinstance(error, UNCHARGED_ERRORS):
        return _dead_verdict(policy, attempts, text)
    if isinstance(error, UnrecoverableError):
        return _dead_verdict(policy, attempts + 1, text)
    if isinstance(error, RetryAfterError):
        return _retry_after(policy, attempts + 1, error, getattr(error, "delay", None), limit, text)
    return _ask_policy(policy, attempts + 1, error, limit, text)


def _ask_policy(policy: FailurePolicy, attempts: int, error: BaseException, limit: int, text: str) -> Verdict:
    # The policy may be the application's own, so its answer counts only if it is a delay.
    policy_error: BaseException | None = None
    try:
        retry, delay = bool(policy.retry.should_retry(error)), FALLBACK_DELAY
        if retry:
            delay = delay_of(policy.retry.next_delay(attempts))
    except BaseException as wrong:
        # The retry policy is application code. If it fails, the event must still get a verdict, so the fallback delay
        # applies.
        retry, delay, policy_error = True, FALLBACK_DELAY, wrong
        text = make_storable(f"{text}; and its retry policy failed: {describe(wrong, limit)}", limit)
    return _retry(policy, attempts, delay, text, policy_error) if retry else _dead_verdict(policy, attempts, text)


def describe(error: BaseException, limit: int) -> str:
    """Return an exception's type and text in at most `limit` characters, fit for the database."""
    # The form can be stored in the database.
    return make_storable(f"{format_error_name(error)}: {text_of(error)}", limit)


def make_storable(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, without secrets, in a form that PostgreSQL can store."""
    # Masked or replaced parts become shorter, so start with twice the limit.
    return clean_text(text[: 2 * limit])[:limit]


def clean_text(text: str) -> str:
    """Return an error's text in a form that PostgreSQL can store, without secrets."""
    # `repr`s of events are also left out. NUL and lone surrogates are escaped.
    shown = _EVENT.sub("the event", mask_secrets(text))
    return shown.replace("\0", "\\0").encode(errors="backslashreplace").decode()
