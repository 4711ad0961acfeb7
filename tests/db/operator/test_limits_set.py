"""Limits of handlers: what operators set overrides what is declared, bound by bound, and is noted."""

from math import inf
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ownership import SCHEMA, join

from partbox import Outbox
from partbox.db.delivery import limits
from partbox.db.delivery.limits import LimitReport, WaitingValue, merge_limits, note_limits, parse_changes
from partbox.errors import PartboxError

ROWS = "select subscription, handler, rate, at_once from partbox.handler_limit order by subscription, handler"


def rows(conn) -> list[tuple[str, str, float | None, float | None]]:
    return conn.execute(ROWS).fetchall()


def test_each_bound_of_a_limit_is_set_by_itself_and_lifted_by_the_word_none(outbox, conn):
    assert outbox.limits.set("charge", rate="90/m") is True
    assert rows(conn) == [("default", "charge", 1.5, None)]
    assert outbox.limits.set("charge", at_once=5) is True
    assert rows(conn) == [("default", "charge", 1.5, 5.0)]
    assert outbox.limits.set("charge", rate="none") is True
    assert rows(conn) == [("default", "charge", inf, 5.0)]
    (limit,) = outbox.limits.list()
    assert (limit.rate, limit.at_once, limit.change.rate, limit.change.at_once) == (None, 5, "none", 5.0)


def test_setting_a_limit_to_its_present_value_changes_nothing_and_is_not_noted(outbox, conn):
    outbox.limits.set("charge", rate="2/s", at_once=1)
    before = conn.execute("select changed_at from partbox.handler_limit").fetchone()
    assert outbox.limits.set("charge", rate="2/s") is False
    assert conn.execute("select changed_at from partbox.handler_limit").fetchone() == before
    assert [each.action for each in outbox.actions.list()] == ["limit set"]


def test_a_reset_removes_a_limit_and_returns_whether_there_was_one(outbox, conn):
    outbox.limits.set("charge", rate="2/s")
    assert outbox.limits.reset("charge") is True
    assert outbox.limits.reset("charge") is False
    assert (rows(conn), outbox.limits.list()) == ([], [])


def test_each_change_is_noted_with_who_made_it(outbox, conn):
    with outbox.acting_as("alice"):
        outbox.limits.set("charge", rate="none", at_once="3")
        outbox.limits.reset("charge")
    reset, changed = outbox.actions.list()
    assert (changed.action, changed.subscription, changed.count) == ("limit set", "default", 1)
    assert changed.target == {"handler": "charge", "rate": "none", "at_once": "3"}
    assert (reset.action, reset.target) == ("limit reset", {"handler": "charge"})
    assert changed.who == f"alice as {conn.info.user}" == reset.who


def test_each_change_of_a_limit_is_logged_and_a_call_that_changes_nothing_is_not(outbox, caplog):
    caplog.set_level("INFO", "partbox.commands")
    for _ in range(2):
        outbox.limits.set("charge", rate="3/s")
    for _ in range(2):
        outbox.limits.reset("charge")
    assert [each.message for each in caplog.records] == [
        "limited handler 'charge': rate 3/s, at once as it was",
        "handler 'charge' is limited as its code declares",
    ]


def test_a_limit_shows_who_changed_it_last_and_when(outbox, conn):
    outbox.limits.set("charge", rate="1/s")
    with outbox.acting_as("bob"):
        outbox.limits.set("charge", rate="2/s")
    (limit,) = outbox.limits.list("default")
    assert limit.change.changed_by == f"bob as {conn.info.user}"
    (at,) = conn.execute("select changed_at from partbox.handler_limit").fetchone()
    assert abs((limit.change.changed_at - at).total_seconds()) < 0.001


def test_handlers_of_the_same_name_in_two_subscriptions_have_limits_of_their_own(outbox, conn):
    outbox.subscriptions.create("audit")
    outbox.limits.set("charge", rate="1/s")
    outbox.limits.set("charge", rate="2/s", subscription="audit")
    outbox.limits.reset("charge")
    assert [(each.subscription, each.rate) for each in outbox.limits.list()] == [("audit", 2)]


def test_a_dropped_subscription_takes_its_limits_along(outbox, conn):
    outbox.subscriptions.create("audit")
    outbox.limits.set("charge", rate="2/s", subscription="audit")
    outbox.limits.set("charge", rate="1/s")
    outbox.subscriptions.drop("audit")
    assert rows(conn) == [("default", "charge", 1.0, None)]


def test_a_subscription_that_does_not_exist_is_refused(outbox, conn):
    for act in (
        outbox.limits.reset,
        lambda name, subscription: outbox.limits.set(name, rate="1/s", subscription=subscription),
    ):
        with pytest.raises(PartboxError, match="subscription 'audit' does not exist"):
            act("charge", subscription="audit")
    with pytest.raises(PartboxError, match="subscription 'audit' does not exist"):
        outbox.limits.list("audit")
    assert rows(conn) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "rate is missing, and so is at_once"),
        ({"rate": "fast"}, "rate 'fast' is not a rate: write it like "),
        ({"rate": 1}, "rate 1 is not a rate: write it like "),
        ({"rate": "-1/s"}, "rate '-1/s' is not a rate: write it like "),
        ({"rate": 5}, "rate 5 is not a rate: write it like "),
        ({"rate": True}, "rate True is not a rate: write it like "),
        ({"at_once": 0}, "at_once 0 must be a whole number from 1"),
        ({"at_once": "5.0"}, "at_once '5.0' must be a whole number from 1"),
        ({"at_once": "0"}, "at_once '0' must be a whole number from 1"),
        ({"at_once": 10**9}, "at_once 1000000000 must be a whole number from 1"),
        ({"at_once": 1.5}, "at_once 1.5 must be a whole number from 1"),
        ({"at_once": True}, "at_once True must be a whole number from 1"),
    ],
)
def test_an_invalid_bound_is_refused_with_its_value_and_the_remedy(outbox, conn, given, said):
    with pytest.raises(PartboxError) as refused:
        outbox.limits.set("charge", **given)
    assert said in str(refused.value)
    assert '"none" to lift ' in str(refused.value)
    assert rows(conn) == []


def test_a_name_that_no_handler_has_is_refused_where_the_handlers_are_known(dsn, conn):
    outbox = Outbox(dsn)
    outbox.on("Paid", name="shop.charge")(print)
    outbox.on("Sent", name="shop.send")(print)
    outbox.on("Paid", name="audit.note", subscription="audit")(print)
    outbox.on("Kept", name="shop.keep", transactional=True)(lambda event, connection: None)
    outbox.subscriptions.create("audit")
    with pytest.raises(PartboxError, match=r"handler 'shop.charg' is not in .*: did you mean 'shop.charge'"):
        outbox.limits.set("shop.charg", rate="1/s")
    with pytest.raises(PartboxError, match=r"handler 'x' is not in .*: there are shop.charge, shop.send"):
        outbox.limits.set("x", rate="1/s")
    with pytest.raises(PartboxError, match=r"there are shop.charge, shop.send"):
        outbox.limits.reset("audit.note")
    with pytest.raises(PartboxError, match=r"handler 'shop.keep' is not in .*, or takes no limit"):
        outbox.limits.set("shop.keep", rate="1/s")
    outbox.limits.set("audit.note", rate="1/s", subscription="audit")
    assert rows(conn) == [("audit", "audit.note", 1.0, None)]


def test_a_limit_of_a_handler_that_no_longer_exists_can_be_reset(outbox, dsn, conn):
    outbox.limits.set("shop.old", rate="1/s")
    renamed = Outbox(dsn)
    renamed.on("Paid", name="shop.new")(print)
    assert renamed.limits.reset("shop.old") is True


def test_a_handler_without_a_name_is_refused(outbox, conn):
    with pytest.raises(PartboxError, match="handler"):
        outbox.limits.set("", rate="1/s")
    assert rows(conn) == []


def test_workers_are_notified_of_a_changed_limit_at_once(outbox, conn, dsn):
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute('listen "partbox:partbox"')
        outbox.limits.set("charge", rate="1/s")
        outbox.limits.reset("charge")
        told = [each.payload for each in listener.notifies(timeout=5, stop_after=2)]
    assert told == ["changed default", "changed default"]


def test_the_reports_of_processes_are_summed_up_and_combined_with_the_limits_set(outbox, conn):
    first, second = join(conn, 2)
    tenants = (WaitingValue("acme", 8, 4.0), WaitingValue("zoo", 1, 0.5))
    note_limits(conn, SCHEMA, first, [LimitReport("charge", 10.0, 4, "tenant_id", 9, 4.0, tenants)])
    note_limits(
        conn, SCHEMA, second, [LimitReport("charge", 10.0, 4, "tenant_id", 2, 7.0, (WaitingValue("acme", 2, 7.0),))]
    )
    outbox.limits.set("charge", rate="3/s")
    (limit,) = outbox.limits.list()
    assert (limit.handler, limit.rate, limit.at_once, limit.by) == ("charge", 3.0, 4, "tenant_id")
    assert (limit.waiting, limit.waited, limit.processes) == (11, 7.0, 2)
    assert limit.values == (WaitingValue("acme", 10, 7.0), WaitingValue("zoo", 1, 0.5))
    assert outbox.stats.cluster().limits == (limit,)


texts = st.sampled_from(["a", "b", "c"])
values = st.lists(st.builds(WaitingValue, texts, st.integers(1, 9), st.floats(0, 99)), max_size=4).map(tuple)
kept = st.builds(
    LimitReport,
    texts,
    rate=st.none() | st.floats(0.1, 99),
    at_once=st.none() | st.integers(1, 9),
    waiting=st.integers(0, 99),
    waited=st.none() | st.floats(0, 99),
    values=values,
)
bounds = st.none() | st.just("Infinity") | st.integers(1, 9)
changed = st.builds(
    dict,
    kind=st.just("handler"),
    value=st.just(""),
    handler=texts,
    rate=bounds,
    at_once=bounds,
    changed_at=st.just(1.0),
    changed_by=st.just("x"),
)


@given(reports=st.lists(kept), rows=st.lists(changed, unique_by=lambda row: row["handler"]))
def test_each_handler_with_a_limit_is_listed_once_and_every_waiting_event_is_counted(reports, rows):
    found = merge_limits("default", reports, parse_changes(rows))
    names = {each.handler for each in reports} | {row["handler"] for row in rows}
    assert [each.handler for each in found] == sorted(names)
    assert sum(each.waiting for each in found) == sum(each.waiting for each in reports)
    assert all(len(each.values) <= limits.MAX_VALUES for each in found)
    for row in rows:
        (limit,) = (each for each in found if each.handler == row["handler"])
        if row["rate"] is not None:
            assert limit.rate == (None if row["rate"] == "Infinity" else row["rate"])


def test_numbers_that_are_invalid_as_bounds_are_kept_out_of_the_table(conn):
    for column, least in (("rate", "-1"), ("at_once", "0")):
        for number in (least, "'NaN'", "null"):
            with pytest.raises(psycopg.errors.CheckViolation):
                conn.execute(
                    f"insert into partbox.handler_limit (subscription, handler, {column}, changed_by)"
                    f" values ('default', 'charge', {number}, 'me')"
                )


def test_a_process_without_an_instance_row_writes_no_limit_report(conn):
    note_limits(conn, SCHEMA, UUID(int=7), [LimitReport("charge")])
    assert conn.execute("select count(*) from partbox.instance").fetchone() == (0,)
