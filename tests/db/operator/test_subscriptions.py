"""Subscriptions: what a pause stops, what a drop removes, what the list says."""

import threading
from functools import wraps

import pytest
from hammer import hammer
from ownership import ALL, assign, background, bury, claim, join, worker
from run_size import seconds
from subscribing import SCHEMA, consume, gets, is_paused, publish, rows

from partbox.db.delivery import cursors, instances
from partbox.db.operator import subscriptions
from partbox.errors import PartboxError
from partbox.protocol.rows import CursorSave


@pytest.fixture
def consumed(outbox, conn) -> None:
    """A subscription `audit` that has consumed events 1 to 9, of several partitions."""
    consume(conn, outbox)


# Pause and resume.


def test_a_pause_takes_every_assignee_away_and_lets_owners_be(outbox, conn):
    me, _ = join(conn, 2)
    assign(conn, me)
    claim(conn, me)
    assert outbox.subscriptions.pause("default") is True
    assert outbox.subscriptions.pause("default") is False
    assert set(rows(conn, "default", "assignee, owner")) == {(None, me)}
    assert instances.list_assignees(conn, SCHEMA, "default") == []


def test_a_pause_leaves_other_subscriptions_alone(outbox, conn):
    outbox.subscriptions.create("audit")
    assign(conn, *join(conn))
    outbox.subscriptions.pause("audit")
    assert None not in {assignee for (assignee,) in rows(conn, "default", "assignee")}
    assert (is_paused(conn, "audit"), is_paused(conn, "default")) == (True, False)


def test_no_plan_comes_into_force_in_a_paused_subscription_or_in_none(outbox, conn):
    (me,) = join(conn)
    outbox.subscriptions.pause("default")
    assert instances.assign_partitions(conn, SCHEMA, "default", [me], [None] * 256, [me] * 256) is False
    assert instances.assign_partitions(conn, SCHEMA, "gone", [], [], []) is False
    outbox.subscriptions.resume("default")
    assert instances.assign_partitions(conn, SCHEMA, "default", [me], [None] * 256, [me] * 256) is True


def test_a_plan_beside_a_pause_is_not_made_and_does_not_wait(dsn, conn):
    (me,) = join(conn)
    with worker(dsn) as pausing, worker(dsn) as planning:
        with pausing.transaction():
            assert subscriptions.pause(pausing, SCHEMA, "default")
            assert instances.assign_partitions(planning, SCHEMA, "default", [me], [None] * 256, [me] * 256) is False
        assert instances.assign_partitions(planning, SCHEMA, "default", [me], [None] * 256, [me] * 256) is False
    assert set(rows(conn, "default", "assignee")) == {(None,)}


def test_a_resume_says_whether_it_was_paused(outbox, conn):
    assert outbox.subscriptions.resume("default") is False
    outbox.subscriptions.pause("default")
    assert outbox.subscriptions.resume("default") is True
    assert is_paused(conn, "default") is False


@pytest.mark.parametrize("command", ["pause", "resume", "drop", "replay"])
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(outbox, command):
    arguments = {"from_id": 1} if command == "replay" else {}
    with pytest.raises(PartboxError, match="'audit' does not exist in schema 'partbox': there is 'default'"):
        getattr(outbox.subscriptions, command)("audit", **arguments)
    with pytest.raises(PartboxError, match="holds a NUL character"):
        getattr(outbox.subscriptions, command)("a\0b", **arguments)


# Drop.


def test_a_drop_removes_what_belongs_to_it_and_nothing_else(outbox, conn, consumed):
    for subscription in ("audit", "default"):
        conn.execute(
            "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
            " values (%s, 1, 1, 'A', 'Step', 'dead', false)",
            [subscription],
        )
    before = rows(conn, "default", "*")
    outbox.subscriptions.drop("audit")
    assert rows(conn, "audit", "*") == []
    assert rows(conn, "default", "*") == before
    assert conn.execute("select subscription from partbox.parked").fetchall() == [("default",)]
    assert conn.execute("select count(*) from partbox.record").fetchone() == (9,)
    outbox.subscriptions.create("audit")
    assert gets(conn, "audit") == list(range(1, 10))


@pytest.mark.parametrize("before", [False, True])
def test_a_drop_is_refused_while_worker_processes_are_registered_and_leaves_all_as_it_was(
    outbox, conn, consumed, before
):
    join(conn, 7, node="node-a", subscription="audit")
    if before:
        outbox.subscriptions.pause("audit")
    left = "it stays paused, as it was before" if before else "and delivery goes on"
    said = rf"are still running: node-a 1, .*node-a 5 and 2 more\. Stop them and try again; nothing was .*{left}$"
    with pytest.raises(PartboxError, match=said):
        outbox.subscriptions.drop("audit", timeout="100ms")
    assert is_paused(conn, "audit") is before
    assert len(rows(conn, "audit", "*")) == 256


def test_a_drop_waits_until_the_workers_have_ended(outbox, conn, consumed):
    (me,) = join(conn, subscription="audit")
    waited = threading.Event()
    with background() as run:
        dropped = run(outbox.subscriptions.drop, "audit", 30, progress=lambda _: waited.set())
        assert waited.wait(120)
        bury(conn, [me], known_dead=True)
        dropped.result()
    assert is_paused(conn, "audit") is None


def test_changes_since_the_wait_of_a_replay_or_drop_are_noticed_under_its_locks(conn):
    """The last look is that of the functions, which have locked what they look at."""
    (me,) = join(conn)

    def problems() -> tuple[object, object]:
        replayed = subscriptions.replay(conn, SCHEMA, "default", 1, None, resume=False)
        return subscriptions.drop(conn, SCHEMA, "default"), replayed.problem

    assert problems() == ("resumed", "resumed")
    subscriptions.pause(conn, SCHEMA, "default")
    conn.execute("update partbox.partition set owner = %s where partition = 255", [me])
    assert problems() == ("owners", "owners")
    conn.execute("update partbox.partition set owner = null")
    assert problems() == ("instances", None)
    bury(conn, [me], known_dead=True)
    assert subscriptions.drop(conn, SCHEMA, "default") is None
    assert problems() == ("missing", "missing")


def test_the_default_subscription_can_be_dropped_and_made_again(outbox, conn):
    outbox.subscriptions.drop("default")
    publish(conn, 1)
    assert outbox.subscriptions.list() == []
    outbox.subscriptions.create("default", "now")
    publish(conn, 2)
    assert gets(conn, "default") == [2]


# List.


def test_the_list_shows_the_outstanding_work_of_each_subscription(outbox, conn, consumed):
    outbox.subscriptions.create("urgent", "now", ["B", "A"])
    outbox.subscriptions.pause("urgent")
    publish(conn, 10, 11)
    join(conn, 2, subscription="audit")
    for id, state in enumerate(["dead", "dead", "held", "retrying", "scheduled"], start=1):
        conn.execute(
            "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
            " values ('audit', %s, 1, 'A', 'Step', %s, false)",
            [id, state],
        )
    audit, default, urgent = outbox.subscriptions.list()
    assert (audit.name, audit.instances, audit.pending, audit.parked, audit.dead) == ("audit", 2, 2, 3, 2)
    assert (default.name, default.pending, default.exact, default.types) == ("default", 11, True, None)
    assert (default.paused_at, default.instances, default.parked, default.dead) == (None, 0, 0, 0)
    assert (urgent.types, urgent.pending, urgent.paused_at is not None) == (("A", "B"), 2, True)
    assert audit.created_at <= urgent.created_at <= urgent.paused_at


def test_a_deep_backlog_is_estimated_and_not_read(outbox, conn):
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select number %% 4, gen_random_uuid(), 'Step', '{}' from generate_series(1, %s) as number",
        [40_000],
    )
    (default,) = outbox.subscriptions.list()
    assert default.exact is False
    assert default.pending == pytest.approx(40_000, rel=0.05)
    conn.execute("update partbox.partition set last_id = 39900, floor_id = 39900, snapshot = pg_current_snapshot()")
    (default,) = outbox.subscriptions.list()
    assert (default.exact, default.pending) == (True, 100)


# All at once. Two subscriptions, so that the order of partition rows across subscriptions counts too.

BOTH = ("default", "audit")


def each(act):
    """A role that does `act` to one subscription after the other; its name is that of `act`."""

    @wraps(act)
    def role(own, random):
        return sum(bool(act(own, random, subscription)) for subscription in BOTH)

    return role


@each
def planned(own, random, subscription):
    members = [m.instance_id for m in instances.list_members(own, SCHEMA, subscription)]
    seen = instances.list_assignees(own, SCHEMA, subscription)
    first = random.randrange(len(members))
    wanted = [members[(number + first) % len(members)] for number in ALL]
    return seen and instances.assign_partitions(own, SCHEMA, subscription, members, seen, wanted)


@each
def worked(own, random, subscription):
    claimed = 0
    for member in instances.list_members(own, SCHEMA, subscription):
        mine = cursors.claim_partitions(own, SCHEMA, subscription, member.instance_id)
        saved = [CursorSave(row.partition, row.epoch, None, None, None, True) for row in mine]
        if saved:
            cursors.save(own, SCHEMA, subscription, member.instance_id, saved)
        claimed += len(mine)
    return claimed > 1


@each
def paused(own, random, subscription):
    subscriptions.pause(own, SCHEMA, subscription)
    return subscriptions.resume(own, SCHEMA, subscription)


@each
def replayed(own, random, subscription):
    """Often refused, behind the same locks."""
    subscriptions.pause(own, SCHEMA, subscription)
    subscriptions.replay(own, SCHEMA, subscription, 3, None, resume=True)
    subscriptions.resume(own, SCHEMA, subscription)
    return True


def buried(own, random):
    own.execute(
        """update partbox.partition p set owner = gen_random_uuid()
             from (select subscription, partition from partbox.partition where partition = 5 and owner is null
                    order by subscription, partition for no key update) unowned
            where (p.subscription, p.partition) = (unowned.subscription, unowned.partition)"""
    )
    return instances.bury_instances(own, SCHEMA, [], known_dead=False)[1]


def test_commands_beside_plans_claims_saves_and_buries_never_deadlock(dsn, conn, outbox):
    publish(conn, *range(1, 30))
    outbox.subscriptions.create("audit")
    for subscription in BOTH:
        join(conn, 2, subscription=subscription)
    # One alone works, as each instance does: of two that claim as the same one, neither could release what it has.
    hammer(dsn, conn, [worked, *2 * [planned, buried, paused, replayed]], seconds=seconds(4), least=3)
