"""The page's data of one look at the outbox: texts made harmless, alarms, news, charts."""

from dataclasses import replace
from datetime import timedelta
from threading import Event
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sights import ADA, BEGAN, BOB, EVE, cluster, instance, overview, partition

from partbox.dashboard import frame
from partbox.dashboard.alarms import find_alarms
from partbox.dashboard.frame import from_roster, make_process_labels
from partbox.dashboard.history import ChartPoint, DayOfLags, History, PageNews
from partbox.dashboard.page_text import cut_text, escape_invisible
from partbox.db.inspect.stats import RunningHandler
from partbox.errors import PartboxError
from partbox.http.address import Address, parse_address
from partbox.operations.stats import Rates
from partbox.terminal.roster import COLOURS, ProcessBadge, Roster

TRICKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\ufeff\x00\x1b\x7f\x9b\n\t"


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(TRICKS))), st.integers(2, 50))
def test_shown_text_has_no_control_or_bidirectional_characters_and_is_not_too_long(text, most):
    shown = cut_text(text, most)
    assert len(shown) <= most
    assert not set(shown + escape_invisible(text)) & set(TRICKS)
    shown.encode()  # and no half character is left


@given(st.text(alphabet="abc 'äß漢字אב👩\u200d💻", max_size=20))
def test_ordinary_text_in_any_script_is_unchanged(text):
    assert escape_invisible(text) == text


def test_shortened_text_ends_with_an_ellipsis():
    assert cut_text("x" * 81) == "x" * 79 + "…"
    assert cut_text("x" * 80) == "x" * 80
    assert cut_text(" " * 10_000 + "x", 10).endswith("…")
    assert cut_text(None) is None


def names(found, unowned_for=0.0, at=BEGAN):
    return [(alarm.level, alarm.name) for alarm in find_alarms(found, unowned_for, at)]


def test_an_outbox_that_works_has_no_alarm():
    assert names(cluster()) == []


def test_having_no_worker_or_only_silent_workers_is_a_problem():
    assert names(cluster([None] * 256, instances=[])) == [("bad", "no-workers")]
    (alarm,) = find_alarms(cluster(instances=[instance(ADA, heartbeat_age=7.0)]), 0.0, BEGAN)
    assert ("silent" in alarm.text, BEGAN - alarm.since) == (True, timedelta(seconds=7))


def test_partitions_without_an_owner_are_an_alarm_when_it_lasts():
    found = cluster([None] * 3 + [ADA] * 253)
    assert names(found, unowned_for=11.9) == []
    assert names(found, unowned_for=12.1) == [("warn", "unowned")]


def test_a_paused_subscription_says_for_how_long_and_needs_no_owners():
    found = cluster([None] * 256, paused=True, paused_at=BEGAN - timedelta(hours=5))
    (alarm,) = find_alarms(found, 1_000, BEGAN)
    assert (alarm.name, alarm.actions, alarm.subscription) == ("paused", ("resume",), "default")
    assert BEGAN - alarm.since == timedelta(hours=5)
    assert "paused for 5 hours" in alarm.text


def told(*found):
    news, faces = PageNews(), make_process_labels()
    for each in found:
        news.note_changes(each, faces(each.instances), BEGAN)
    return [(each.kind, each.text) for each in news.items]


def test_a_process_that_joins_or_leaves_or_disappears_is_news():
    both, eve = cluster(), instance(EVE)
    assert told(both) == []
    joined = told(both, cluster(instances=[*both.instances, eve]))
    assert joined == [("joined", "process C (pid 3 on north) joined")]
    draining = cluster(instances=[both.instances[0], replace(both.instances[1], draining=True)])
    assert told(both, draining, draining) == [("leaves", "process B (pid 2 on north) leaves")]
    gone = told(both, cluster(instances=both.instances[1:]))
    assert gone == [("gone", "process A (pid 1 on north) is gone with 256 partitions still its own")]


def test_partitions_that_move_are_counted_by_whom_they_left():
    before = cluster([ADA] * 128 + [BOB] * 128)
    after = cluster([BOB] * 3 + [ADA] * 125 + [BOB] * 128, [2] * 3 + [1] * 253)
    assert told(before, after) == [("moved", "3 partitions moved from A to B")]
    claimed = cluster([None] * 2 + [ADA] * 254), cluster([BOB] * 2 + [ADA] * 254, [2] * 2 + [1] * 254)
    assert told(*claimed) == [("moved", "2 partitions moved to B")]


def test_a_pause_is_news():
    assert told(cluster(), cluster(paused=True), cluster()) == [
        ("said", "the subscription was paused"),
        ("said", "the subscription was resumed"),
    ]


def test_the_history_starts_anew_after_a_gap():
    history, found = History(), cluster(parked={"dead": 7, "held": 2})
    for second in range(3):
        point = history.add_point(BEGAN + timedelta(seconds=second), found, Rates(3.0, 2.0))
    assert (tuple(point), len(history.points)) == ((3.0, 2.0, 0.0, 2), 3)
    assert tuple(history.points[0])[:2] == (None, None)
    history.add_point(BEGAN + timedelta(seconds=60), found, Rates(3.0, 2.0))
    assert [tuple(each)[:2] for each in history.points] == [(None, None)]


def seen(lag, minutes, name="default"):
    """A look at subscriptions, of which this one lags so much."""
    late = replace(cluster(subscription=name), partitions=(partition(0, ADA, oldest_age=lag),))
    return overview(late, seconds=60.0 * minutes)


def test_the_longest_lag_of_every_five_minutes_is_kept_for_a_day():
    lags = DayOfLags()
    for minutes, lag in ((0, 1.0), (1, 40.0), (4, None), (5, 7.0), (15, 2.0)):
        lags.record_lags(seen(lag, minutes))
    ((name, now, bars),) = lags.list_worst(9)
    assert (name, now, bars[-4:], len(bars)) == ("default", 2.0, [40.0, 7.0, None, 2.0], 288)
    lags.record_lags(seen(3.0, 24 * 60 + 4))
    ((_, _, bars),) = lags.list_worst(9)
    assert (bars[0], bars[-1]) == (7.0, 3.0)
    for minutes in range(0, 10_000, 5):
        lags.record_lags(seen(float(minutes), minutes))
    assert len(lags._bars["default"]) == 288


def test_the_subscriptions_that_lag_most_come_first_and_those_that_are_gone_are_forgotten():
    lags = DayOfLags()
    lags.record_lags(overview(*(seen(lag, 0, name).clusters[0] for name, lag in (("a", 1.0), ("b", 9.0), ("c", 5.0)))))
    assert [name for name, _, _ in lags.list_worst(2)] == ["b", "c"]
    lags.record_lags(seen(2.0, 1, "a"))
    assert [(name, now) for name, now, _ in lags.list_worst(9)] == [("a", 2.0)]


def test_lags_are_sampled_while_nobody_watches_until_the_database_connection_is_closed():
    class Glance:
        closed = Event()
        looks = 0

        def read_overview(self):
            self.looks += 1
            if self.looks == 1:
                raise PartboxError("the database is away for a moment")
            if self.looks == 3:
                self.closed.set()
            return seen(4.0, 0)

    overview_cache, lags = Glance(), DayOfLags(interval=0.001)
    lags.start_sampling(overview_cache)
    lags.start_sampling(overview_cache)
    lags._sampler.join()
    assert (overview_cache.looks, [now for _, now, _ in lags.list_worst(9)]) == (3, [4.0])


def shown(found):
    return frame.build_subscription(found, make_process_labels()(found.instances), ChartPoint(None, None, 0.0, 0), ())


def test_the_lag_is_that_of_the_oldest_event_that_is_not_finished_unread_or_parked():
    found = replace(
        cluster(),
        partitions=(
            partition(0, ADA, oldest_age=3.0),
            partition(1, ADA, oldest_age=1.0, parked_age=90.0),
            partition(2, ADA, parked_age=2.0),
            partition(3, ADA),
        ),
    )
    assert (shown(found)["lag"], shown(found)["lags"]) == (90.0, [3.0, 90.0, 2.0, None])
    assert History().add_point(BEGAN, found, None).lag == 90.0


def test_two_nodes_of_one_name_on_one_host_are_two():
    first, second = UUID(int=8), UUID(int=9)
    found = cluster(
        instances=[
            instance(ADA, node="web-1", supervisor=second),
            instance(BOB, node="web-1", supervisor=first),
            instance(EVE, node="web-1", supervisor=second),
        ]
    )
    told = shown(found)
    assert [(each["pid"], each["node"]) for each in told["instances"]] == [
        (1, "web-1 (2)"),
        (2, "web-1"),
        (3, "web-1 (2)"),
    ]
    assert told["nodes"] == 2


def test_long_running_handlers_are_listed_with_their_process_the_longest_first():
    def running(seconds, number):
        return RunningHandler("shop.ship", "Placed", "Order", "7\u202e", number, seconds)

    found = cluster(instances=[instance(ADA, running=(running(12.4, 1), running(70.0, 2))), instance(BOB)])
    told = shown(found)["running"]
    assert (told["count"], [(each["place"], each["record"], each["seconds"]) for each in told["handlers"]]) == (
        2,
        [(0, 2, 70), (0, 1, 12)],
    )
    assert told["handlers"][0]["aggregate_id"] == r"7\u202e"
    many = tuple(running(11.0, number) for number in range(100))
    told = shown(cluster(instances=[instance(ADA, running=many, running_more=7)]))["running"]
    assert (told["count"], len(told["handlers"])) == (107, frame.MOST_RUNNING)


def test_the_page_uses_the_same_process_letters_as_the_terminal_view():
    roster = Roster()
    roster.add_processes([UUID(int=7), ADA])
    faces = from_roster(roster)([instance(ADA), instance(BOB)])
    assert (faces[ADA], faces[BOB].letter) == (ProcessBadge("B", COLOURS[1]), "·")


@pytest.mark.parametrize(
    ("text", "meant", "loopback"),
    [
        (":9465", Address("127.0.0.1", 9465), True),
        ("localhost:0", Address("localhost", 0), True),
        ("[::1]:80", Address("::1", 80), True),
        ("0.0.0.0:80", Address("0.0.0.0", 80), False),
        ("page.example:80", Address("page.example", 80), False),
    ],
)
def test_an_address_is_a_host_and_a_port(text, meant, loopback):
    assert (parse_address(text), parse_address(text).is_loopback) == (meant, loopback)
    assert parse_address(str(meant)) == meant


@pytest.mark.parametrize("text", ["", "9465", "x:", "x:y", "x:65536", "x:-1", "x y:1", "::1:80", "http://x:1", "x:²"])
def test_an_invalid_address_is_refused_and_named(text):
    with pytest.raises(PartboxError, match="HOST:PORT"):
        parse_address(text)
