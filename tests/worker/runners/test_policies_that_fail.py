"""An application's own policies never end a worker, whatever they return: the event is parked, and others go on."""

import sys
from datetime import timedelta
from typing import Any

import pytest

from partbox import Dead, RetryAfter
from partbox.protocol.verdict import FALLBACK_DELAY


class Odd:
    def __init__(self, delay: Any, retry: Any = True) -> None:
        self.delay, self.retry = delay, retry

    def should_retry(self, error: BaseException) -> Any:
        return self.retry

    def next_delay(self, attempt: int) -> Any:
        if isinstance(self.delay, BaseException):
            raise self.delay
        return self.delay


class NoBool:
    def __bool__(self) -> bool:
        raise SystemExit("neither true nor false")


class NoClass:
    """An outcome that denies its own class."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise SystemExit("no class")


def tampered(delay: Any) -> RetryAfter:
    outcome = RetryAfter(1)
    object.__setattr__(outcome, "delay", delay)
    return outcome


POLICIES = [Odd(timedelta(minutes=5)), Odd(None), Odd("soon"), Odd(float("nan")), Odd(1j), Odd(-1), Odd(True),
            Odd(object()), Odd(SystemExit(1)), Odd(1, NoBool())]  # fmt: skip
ADVICE = [lambda: tampered("x"), NoClass, NoBool, lambda: Dead(NoBool()), lambda: sys.exit(3)]
OUTCOMES = [NoClass, NoBool, lambda: tampered(None), lambda: tampered(NoBool())]


@pytest.mark.parametrize("kind", ["sync", "async", "list"])
def test_no_policy_however_odd_ends_a_worker(desk, conn, caplog, kind):
    outbox, done = desk.outbox, []

    def on(name: str, result: Any = None, **options: Any) -> None:
        def run() -> Any:
            if result is None:
                raise ValueError("broken")
            return result()

        async def asynchronous(event):
            return run()

        def batch(events):
            return [run() for _ in events]

        if kind == "list":
            outbox.on_batch(name, max_size=1, **options)(batch)
        else:
            outbox.on(name, **options)(asynchronous if kind == "async" else lambda event: run())

    for n, policy in enumerate(POLICIES):
        on(f"Policy{n}", retry=policy)
    for n, advice in enumerate(ADVICE):
        on(f"Advice{n}", retry="fixed:600", on_error=lambda event, error, attempt, give=advice: give())
    for n, outcome in enumerate(OUTCOMES):
        on(f"Outcome{n}", outcome, retry="fixed:600")
    outbox.on("Fine")(lambda event: done.append(event.event_type))
    names = [f"{kind}{n}" for kind, cases in (("Policy", POLICIES), ("Advice", ADVICE), ("Outcome", OUTCOMES))
             for n in range(len(cases))]  # fmt: skip
    with outbox.transaction() as tx:
        for name in [*names, "Fine"]:
            outbox.publish(tx, name, {}, aggregate_id=name)
    desk.drain()
    assert done == ["Fine"]
    parked = conn.execute(
        "select event_type, state, attempts, round(extract(epoch from due_at - parked_at)) from partbox.parked"
    ).fetchall()
    assert sorted(row[0] for row in parked) == sorted(names)
    found = {name: (state, attempts, due and int(due)) for name, state, attempts, due in parked}
    assert found.pop("Policy0") == ("retrying", 1, 300)
    assert found.pop("Advice3")[:2] == ("dead", 1)
    for name, verdict in found.items():
        seconds = int(FALLBACK_DELAY) if name.startswith("Policy") else 600
        assert verdict == ("retrying", 1, seconds), name
    said = [record for record in caplog.records if getattr(record, "event", "") == "partbox.retry_policy_failed"]
    assert said
