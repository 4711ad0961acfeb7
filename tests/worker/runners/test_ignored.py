"""Events that a subscription ignores because it has no handler for them: no command calls them delivered."""

import pytest

from partbox.db.inspect import log_search

OUTCOMES = "select d.outcome, count(*) from partbox.delivery d where d.subscription = 'audit' group by 1 order by 1"


@pytest.fixture
def audit(desk_with):
    """A desk that ignores what it does not handle, and the search for records."""
    desk = desk_with()
    desk.outbox.subscriptions.create("audit", start="beginning")
    desk.outbox.register(desk.note, "Counted", subscription="audit")
    desk.outbox.register(desk.note, "Paid", "Order", subscription="audit")
    return desk


def ended(desk, *words, **query):
    found = desk.outbox.records.find(*words, subscription="audit", **query)
    return [(each.event_type, standing.state) for each in found.records for standing in each.standings]


def test_an_ignored_event_is_found_as_ignored_and_listed_and_costs_no_row(audit):
    for number in range(20):
        audit.publish(f"{number}", number, event_type="Other" if number % 10 else "Counted")
    audit.publish("paid", 1, event_type="Paid")  # of another aggregate type than the handler's
    with audit.outbox.worker(subscription="audit") as worker:
        assert worker.wait_until_empty(60)
        assert audit.conn.execute(OUTCOMES).fetchall() == [("delivered", 2), ("ignored", 19)]
    assert audit.conn.execute(OUTCOMES).fetchall() == [("delivered", 2), ("ignored", 19)]
    assert ended(audit, "3") == [("Other", "ignored")]
    assert ended(audit, "0") == [("Counted", "delivered")]
    assert {*ended(audit, ended="ignored", limit=200)} == {("Other", "ignored"), ("Paid", "ignored")}
    assert len(ended(audit, ended="ignored", limit=200)) == 19
    assert len(ended(audit, ended="ignored", limit=5)) == 5
    assert ended(audit, ended="ignored", event_type="Paid") == [("Paid", "ignored")]
    assert ended(audit, ended="ignored", until="1h", since="2h") == []
    assert ended(audit, ended="failed") == []
    kept = "select (select count(*) from partbox.attempt), (select count(*) from partbox.handled_types)"
    assert audit.conn.execute(kept).fetchone() == (0, 1)


def test_a_search_for_ignored_events_that_is_cut_says_so_and_goes_on(audit, monkeypatch):
    monkeypatch.setattr(log_search, "MAX_IGNORED_SCAN", 3)
    for number in range(5):
        audit.publish("k", number, event_type="Other")
    audit.drain("audit")
    first = audit.outbox.records.find(ended="ignored")
    assert [each.record_id for each in first.records] == [5, 4, 3]
    assert (first.before, first.read_since) == (3, first.records[-1].published_at)
    second = audit.outbox.records.find(ended="ignored", before=first.before)
    assert [each.record_id for each in second.records] == [2, 1]
    assert (second.before, second.read_since) == (None, None)


def test_events_that_newer_code_handles_are_delivered_and_those_ignored_by_older_code_stay_ignored(audit, desk_with):
    """In a rolling deploy, by processes that may have the same name one after the other."""
    audit.publish("old", 1, event_type="Other")
    with audit.outbox.worker(subscription="audit") as worker:
        assert worker.wait_until_empty(60)
    newer = desk_with()
    newer.outbox.register(newer.note, "Other", subscription="audit")
    newer.publish("new", 2, event_type="Other")
    newer.publish("lost", 3)
    with newer.outbox.worker(subscription="audit") as worker:
        assert worker.wait_until_empty(60)
    assert [each[:2] for each in newer.seen] == [("new", 2)]
    told = {key: ended(audit, key)[0][1] for key in ("old", "new", "lost")}
    assert told == {"old": "ignored", "new": "delivered", "lost": "ignored"}


def test_an_ignored_event_that_had_waited_leaves_a_row_that_says_so(audit):
    audit.publish("k", 1, event_type="Other", deliver_after="1h")
    audit.drain("audit")
    audit.make_due()
    audit.drain("audit")
    assert audit.conn.execute("select outcome, error from partbox.attempt").fetchall() == [
        ("ignored", "no handler for event type 'Other' of aggregate type 'Key'")
    ]
    assert ended(audit, ended="ignored") == [("Other", "ignored")]
    assert ended(audit, ended="failed") == []


def test_no_event_type_is_noted_where_every_event_has_a_handler_or_none_is_ignored(audit):
    audit.outbox.register(audit.note, "*", subscription="audit")
    audit.outbox.register(audit.note, "Counted")
    for name in ("audit", "default"):
        audit.publish(None, 1)
        audit.drain(name)
    assert audit.conn.execute("select count(*) from partbox.handled_types").fetchone() == (0,)
