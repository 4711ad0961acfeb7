"""Verbs for operators refuse an argument of another kind in one line that has the value."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from partbox import Outbox, PartboxError

LATE, EARLY = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
BACKWARDS = "the period from 2026-01-02 00:00:00Z until 2026-01-01 00:00:00Z is empty: give the earlier time first"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda outbox: outbox.dead.list(since=LATE, until=EARLY), BACKWARDS),
        (lambda outbox: outbox.dead.replay_all(since=LATE, until=EARLY), BACKWARDS),
        (lambda outbox: outbox.dead.count(since="1h", until="2h"), "the period from"),
        (lambda outbox: outbox.blocked.list(since=LATE, until=EARLY), BACKWARDS),
        (lambda outbox: outbox.actions.list(since=LATE, until=EARLY), BACKWARDS),
        (lambda outbox: outbox.records.find(since=LATE, until=EARLY), BACKWARDS),
        (lambda outbox: outbox.subscriptions.create("audit", types=7), "types 7 must be a list of event types"),
        (lambda outbox: outbox.purge(-1), "dry_run -1 must be True or False"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_value(dsn: str, call: Callable[[Outbox], Any], said: str) -> None:
    with pytest.raises(PartboxError, match=said) as refused:
        call(Outbox(dsn))
    assert "\n" not in str(refused.value)
