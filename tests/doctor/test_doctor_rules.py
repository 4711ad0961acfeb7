"""The rules of doctor, without a database: what it says of anything, and never says."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from partbox.db.delivery.limits import LimitChange, LimitReport, merge_limits
from partbox.db.inspect.evidence import Evidence, UnreadPart
from partbox.db.inspect.facts import (
    DeadRows,
    DeferredRows,
    HiddenRecords,
    LockWait,
    OpenSession,
    PreparedTransaction,
    ReplicationSlot,
    SequenceFacts,
    ServerFacts,
    TableFacts,
)
from partbox.db.inspect.stats import Cluster, Instance, Overview, PartitionStats
from partbox.db.operator.blocked import BlockedKey
from partbox.doctor import phrases
from partbox.doctor.case import Case, Severity, is_healthy
from partbox.doctor.checks import CHECKS
from partbox.doctor.doctor import run_checks
from partbox.doctor.limits import Limits
from partbox.text import wording

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
IDS = [UUID(int=number) for number in range(1, 4)]

texts = st.sampled_from(["shop", "", "-Odd'\n\x1b[2J\u202e", "x" * 300])
ages = st.sampled_from([0.0, 5.0, 61.0, 9_000.0, 1e7])
counts = st.sampled_from([0, 1, 3, 50, 1_000, 10**6])
ids = st.sampled_from([None, *IDS])


def maybe(strategy):
    return st.none() | strategy


instances = st.builds(
    Instance,
    instance_id=st.sampled_from(IDS),
    node=texts,
    hostname=texts,
    pid=counts,
    version=texts,
    draining=st.booleans(),
    age=ages,
    heartbeat_age=ages,
    lease=st.just(6.0),
    partitions=st.integers(0, 256),
)
partitions = st.builds(
    PartitionStats,
    partition=st.integers(0, 255),
    assignee=ids,
    owner=ids,
    epoch=counts,
    pending=counts,
    exact=st.booleans(),
    oldest_age=maybe(ages),
    claimed_age=maybe(ages),
    saved_age=maybe(ages),
    suspect=st.booleans(),
)
kept = st.builds(
    LimitReport,
    texts,
    rate=maybe(st.sampled_from([0.001, 100.0])),
    at_once=maybe(st.integers(1, 9)),
    by=maybe(texts),
    waiting=counts,
    waited=maybe(ages),
)
changes = st.builds(LimitChange, texts, st.sampled_from([None, "none", 2.0]), st.just(3.0), st.just(NOW), texts)
limited = st.builds(merge_limits, st.just("default"), st.lists(kept, max_size=2), st.lists(changes, max_size=2))
clusters = st.builds(
    Cluster,
    schema=st.just("partbox"),
    subscription=st.sampled_from(["default", "audit", "o'x; --"]),
    paused=st.booleans(),
    instances=st.lists(instances, max_size=3, unique_by=lambda one: one.instance_id).map(tuple),
    partitions=st.lists(partitions, max_size=6, unique_by=lambda one: one.partition).map(tuple),
    parked=st.dictionaries(st.sampled_from(["retrying", "held", "ready", "dead", "scheduled"]), counts),
    created=st.just(NOW),
    paused_at=st.sampled_from([None, NOW, NOW.replace(year=2025)]),
    completed=counts,
    blocked_keys=counts,
    limits=limited,
)
overviews = st.builds(
    Overview,
    schema=st.just("partbox"),
    at=st.just(NOW),
    clusters=st.lists(clusters, max_size=2, unique_by=lambda one: one.subscription).map(tuple),
    newest_id=counts,
)
sessions = st.builds(
    OpenSession,
    pid=counts,
    database=maybe(st.just("shop")),
    user=maybe(texts),
    application=maybe(texts),
    address=maybe(texts),
    state=maybe(st.sampled_from(["active", "idle in transaction", "idle in transaction (aborted)"])),
    age=maybe(ages),
    since=maybe(ages),
    writes=st.booleans(),
    pins_vacuum=st.booleans(),
    xids=maybe(counts),
    query=maybe(texts),
    publishes=st.booleans(),
    blocks_others=st.booleans(),
)
keys = st.builds(
    BlockedKey,
    aggregate_type=texts,
    aggregate_id=texts,
    record_id=counts,
    event_id=st.none(),
    event_type=texts,
    state=st.sampled_from(["retrying", "deferred", "held", "ready", "dead"]),
    attempts=st.integers(0, 20),
    due_at=st.sampled_from([None, NOW]),
    error_type=maybe(texts),
    error=maybe(texts),
    followers=counts,
    blocked_since=st.sampled_from([NOW, NOW.replace(year=2025)]),
    partition=st.just(1),
    owner=st.none(),
    node=st.none(),
    pid=st.none(),
)
named = st.sampled_from(["default", "audit"])
evidences = st.builds(
    Evidence,
    server=maybe(
        st.builds(
            ServerFacts,
            clock=st.just(0.0),
            database=st.just("shop"),
            user=texts,
            sees_all=st.booleans(),
            settings=st.just({"fsync": "off", "jit": "on", "statement_timeout": "0"}),
            connections=st.integers(0, 100),
            max_connections=st.just(97),
            frozen_age=st.sampled_from([0, 2 * 10**9]),
        )
    ),
    is_original=st.booleans(),
    sequence=maybe(
        st.builds(
            SequenceFacts,
            last=maybe(counts),
            increment=st.integers(-1, 2),
            cache=st.integers(1, 2),
            cycle=st.booleans(),
            owned_by=maybe(texts),
            defaults=st.just({}),
        )
    ),
    sessions=st.lists(sessions, max_size=3).map(tuple),
    waits=st.lists(st.builds(LockWait, blockers=st.lists(counts, max_size=2), age=maybe(ages)), max_size=2).map(tuple),
    prepared=st.lists(st.builds(PreparedTransaction, age=ages), max_size=2).map(tuple),
    slots=st.lists(st.builds(ReplicationSlot), max_size=2).map(tuple),
    tables=st.lists(st.builds(TableFacts, name=st.just("parked")), max_size=2).map(tuple),
    highest_used_id=st.none() | counts,
    hidden=st.none() | st.builds(HiddenRecords, counts, counts, counts),
    overview=maybe(overviews),
    keys=st.lists(st.tuples(named, keys), max_size=3).map(tuple),
    deferred=st.lists(st.builds(DeferredRows, subscription=named, age=ages), max_size=2).map(tuple),
    dead=st.lists(
        st.builds(DeadRows, subscription=named, age=ages, first_age=ages, first_recent_age=maybe(ages)), max_size=2
    ).map(tuple),
    unread=st.lists(st.builds(UnreadPart), max_size=2).map(tuple),
)


@settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # such a case takes minutes to shrink
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],  # and is large
)
@given(evidence=evidences, before=maybe(overviews), pooler=st.booleans(), skew=st.sampled_from([0.0, 9.0, -9.0]))
def test_every_finding_has_a_known_cause_and_a_documented_severity(evidence, before, pooler, skew):
    known = {check.name: check.severities for check in CHECKS}
    found = run_checks(Case("partbox", evidence, Limits(pooler=pooler), before=before, clock_skew=skew))
    for each in found:
        assert each.severity in known[each.cause]
        assert each.summary
        assert each.remedy
        assert all(text.strip() for text in (*each.evidence, *each.remedy))
    assert [each.severity for each in found] == sorted((each.severity for each in found), key=list(Severity).index)
    assert is_healthy(found) == (Severity.PROBLEM not in [each.severity for each in found])


@given(st.text(max_size=200), st.text(min_size=5).map(lambda text: text.replace("'", "''")), st.text(max_size=50))
def test_a_statement_is_shown_without_its_quoted_texts(before, payload, after):
    before = before.replace("'", "")
    for query in (f"{before}'{payload}'{after}", f"{before}$x${payload}$x${after}", f"{before}E'{payload}"):
        shown = phrases.format_statement(query)
        assert shown == phrases.format_statement(f"{query.split(payload)[0]}changed") or payload in before
        assert len(shown) <= 120


@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=3), st.sampled_from(["default", "o'x -y"]))
def test_a_command_means_the_same_to_a_shell(names, subscription):
    command = wording.format_command("blocked retry", "my schema", subscription, *names)
    parts = shlex.split(command[1:-1])
    assert parts[:3] == ["partbox", "blocked", "retry"]
    assert parts[-len(names) :] == names
    assert ("--subscription" in parts[: -len(names)]) == (subscription != "default")
    assert ("--" in parts[: -len(names)]) == any(name.startswith("-") for name in names)


@pytest.mark.parametrize(
    ("finding", "limits", "reported"),
    [
        ({"age": 59.0}, Limits(), False),
        ({"age": 60.0}, Limits(), True),
        ({"age": None}, Limits(), False),
        ({"age": 6.0}, Limits(transaction=5.0), True),
        ({"age": 99.0, "pins_vacuum": False}, Limits(), False),
        ({"age": 99.0, "database": "other"}, Limits(), False),
        ({"age": 99.0, "database": "other", "writes": True}, Limits(), True),
    ],
)
def test_a_transaction_is_reported_when_it_is_long_and_holds_something_back(finding, limits, reported):
    server = ServerFacts(0.0, "shop", "me", True, {}, 1, 97)
    given = {"state": "idle in transaction", "database": "shop", "pins_vacuum": True, "writes": False} | finding
    session = replace_in(
        OpenSession(1, None, None, None, None, None, None, None, False, False, 5, None, False, False), given
    )
    case = Case("partbox", Evidence(server=server, sessions=(session,)), limits)
    assert [each.cause for each in run_checks(case)] == (["idle-transaction"] if reported else [])


@pytest.mark.parametrize(
    ("slot", "reported"),
    [
        (ReplicationSlot("s", "logical", True, None, 5, 10), False),
        (ReplicationSlot("s", "logical", False, None, 5, 10), True),
        (ReplicationSlot("s", "physical", False, None, None, None), False),
        (ReplicationSlot("s", "physical", True, 500, None, 10), False),
        (ReplicationSlot("s", "physical", True, 2_000_000, None, 10), True),
    ],
)
def test_a_slot_is_reported_when_it_holds_something_back(slot, reported):
    found = run_checks(Case("partbox", Evidence(slots=(slot,)), Limits()))
    assert [each.cause for each in found] == (["replication-slot"] if reported else [])


@pytest.mark.parametrize(
    ("age", "freeze_max_age", "reported"),
    [
        (400_000_000, 200_000_000, False),
        (400_000_001, 200_000_000, True),
        (1_000_000_000, 1_500_000_000, False),
        (1_000_000_001, 1_500_000_000, True),
    ],
)
def test_transaction_ids_that_vacuum_does_not_free_are_reported_before_they_run_out(age, freeze_max_age, reported):
    server = ServerFacts(0.0, "shop", "me", True, {"autovacuum_freeze_max_age": str(freeze_max_age)}, 1, 97, age)
    found = run_checks(Case("partbox", Evidence(server=server), Limits()))
    assert [each.cause for each in found] == (["wraparound"] if reported else [])


def test_each_holder_that_keeps_vacuum_from_freezing_is_named_the_oldest_first():
    server = ServerFacts(0.0, "shop", "me", True, {"autovacuum_freeze_max_age": "200000000"}, 1, 97, 500_000_000)
    session = OpenSession(
        7, "other", None, None, None, "active", 1.0, 1.0, False, True, 300_000_000, None, False, False
    )
    young = session._replace(pid=8, xids=5)
    prepared = PreparedTransaction("it's", "me", "other", 1.0, 499_000_000)
    slot = ReplicationSlot("standby", "physical", True, 400_000_000, None, 10)
    evidence = Evidence(server=server, sessions=(session, young), prepared=(prepared,), slots=(slot,))
    (found,) = [each for each in run_checks(Case("partbox", evidence, Limits())) if each.cause == "wraparound"]
    assert found.evidence[1:] == (
        "prepared transaction it's has held vacuum back for 499,000,000 transactions",
        "replication slot standby has held vacuum back for 400,000,000 transactions",
        "pid 7 () has held vacuum back for 300,000,000 transactions",
    )
    assert found.remedy[0] == "in database other: `commit prepared 'it''s'` or `rollback prepared 'it''s'`"
    assert "pg_drop_replication_slot('standby')" in found.remedy[1]
    assert "pg_terminate_backend(7)" in found.remedy[2]
    assert found.remedy[3].startswith("then see the oldest tables")


@pytest.mark.parametrize(
    ("age", "blockers", "reported"), [(4.9, [7], False), (5.0, [7], True), (9.0, [], False), (None, [7], False)]
)
def test_a_wait_for_a_lock_is_reported_when_it_is_long_and_somebody_holds_it(age, blockers, reported):
    wait = LockWait(1, "me", "billing", "update partbox.partition", age, blockers, "partition")
    found = run_checks(Case("partbox", Evidence(waits=(wait,)), Limits()))
    assert [each.cause for each in found] == (["locks"] if reported else [])


def replace_in(session: OpenSession, values: dict) -> OpenSession:
    return session._replace(**values)


def test_every_check_has_a_name_and_a_meaning():
    assert all(check.meaning.endswith(".") for check in CHECKS)
    assert not [check.name for check in CHECKS if check.meaning.startswith("Report")]
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert replace(CHECKS[0], name="other").name == "other"


def test_a_sequence_left_unreadable_by_a_promotion_is_a_problem_and_a_migration_is_the_remedy():
    """It is provoked by a real promotion in `tests/db/test_standby.py`."""
    (found,) = run_checks(Case("partbox", Evidence(life_error="bad magic number in sequence"), Limits()))
    assert (found.cause, found.severity) == ("life", Severity.PROBLEM)
    assert found.remedy == ("`partbox migrate` creates the sequence again, as starting workers do",)
