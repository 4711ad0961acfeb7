"""Whatever writes to our tables proves that it did: each table, and what triggers and rules of others keep as it is."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from ownership import ALL, DEFAULT, SCHEMA, assign, bury, claim, expire, join, save, saving, seize
from planted_records import Planter
from psycopg.errors import ObjectNotInPrerequisiteState

from partbox.db.delivery import cursors, instances
from partbox.db.operator import archive, rebase, subscriptions
from partbox.errors import PartboxError
from partbox.protocol.rows import CursorSave, ParkedSave

pytestmark = pytest.mark.every_version("triggers, rules and the numbers of rows")

Conn = psycopg.Connection[Any]
KEPT = "a trigger (or rule )?keeps rows (of|in|out of) table {}"
DROPS = """
create function partbox.drops() returns trigger language plpgsql as 'begin return null; end';
create trigger drops before {} on partbox.{} for each row execute function partbox.drops()
"""


class Stage(NamedTuple):
    """Two instances, of which `me` owns partitions up to 99 and is assigned 100; dead events, and one that blocks."""

    conn: Conn
    me: UUID
    other: UUID
    epochs: dict[int, int]
    dead: int
    blocking: int


@pytest.fixture
def stage(conn: Conn) -> Stage:
    plant = Planter(conn)
    dead, blocking = plant.park("1"), plant.park("2", "retrying", blocks=True, due=60)
    me, other = join(conn, 2)
    epochs = {row.partition: row.epoch for row in seize(conn, me, range(100)).values()}
    conn.execute("update partbox.parked set partition = 3")
    assign(conn, me, [100])
    return Stage(conn, me, other, epochs, dead, blocking)


def run(text: str) -> Callable[[Stage], object]:
    return lambda stage: stage.conn.execute(text, {**stage._asdict(), "conn": None, "epochs": None})


def paused(text: str) -> Callable[[Stage], object]:
    """Run the statement with the subscription paused and nobody at work on it."""

    def call(stage: Stage) -> None:
        stage.conn.execute("alter table partbox.subscription disable trigger user")
        stage.conn.execute("alter table partbox.partition disable trigger user")
        stage.conn.execute("alter table partbox.instance disable trigger user")
        stage.conn.execute("update partbox.subscription set paused_at = now(); delete from partbox.instance")
        stage.conn.execute("update partbox.partition set owner = null, assignee = null")
        stage.conn.execute("alter table partbox.subscription enable trigger user")
        stage.conn.execute("alter table partbox.partition enable trigger user")
        stage.conn.execute(text)

    return call


def park(stage: Stage, number: int, *, new: bool) -> ParkedSave:
    return ParkedSave(3, number, "Order", "1", "Placed", "dead", blocks=False, attempts=1, is_new=new)


def saved(stage: Stage, **more: Any) -> None:
    save(stage.conn, stage.me, [CursorSave(3, stage.epochs[3], "5:5:", 9, 9, False)], **more)


def buried(stage: Stage) -> None:
    """A draining one, whose charged event is uncharged."""
    bury(stage.conn, [stage.me], known_dead=True)


def expired(stage: Stage) -> None:
    stage.conn.execute("alter table partbox.instance disable trigger user")
    expire(stage.conn, stage.me)
    stage.conn.execute("alter table partbox.instance enable trigger user")
    bury(stage.conn, [stage.me])


def planned(stage: Stage) -> None:
    seen = instances.list_assignees(stage.conn, SCHEMA, DEFAULT)
    members = sorted([stage.me, stage.other])
    instances.assign_partitions(stage.conn, SCHEMA, DEFAULT, members, seen, [stage.other for _ in ALL])


WRITES: dict[str, tuple[str, str, Callable[[Stage], object]]] = {
    "an instance joins": ("insert", "instance", lambda stage: join(stage.conn, 3)),
    "a heartbeat": (
        "update",
        "instance",
        lambda stage: instances.renew_heartbeats(stage.conn, SCHEMA, {stage.me: False, stage.other: False}),
    ),
    "a heartbeat of one": (
        "update",
        "instance",
        lambda stage: instances.renew_heartbeats(stage.conn, SCHEMA, {stage.me: False}),
    ),
    "a burial of a child": ("delete", "instance", buried),
    "a burial of an expired one": ("delete", "instance", expired),
    "a burial that frees": ("update", "partition", buried),
    "a burial that uncharges": ("update", "parked", buried),
    "a claim": ("update", "partition", lambda stage: claim(stage.conn, stage.me)),
    "a new session": (
        "update",
        "partition",
        lambda stage: cursors.take_up_partitions(stage.conn, SCHEMA, DEFAULT, stage.me, stage.epochs),
    ),
    "a plan": ("update", "partition", planned),
    "a save": ("update", "partition", saved),
    "a save that parks": ("insert", "parked", lambda stage: saved(stage, parks=[park(stage, 99, new=True)])),
    "a save that parks again": (
        "update",
        "parked",
        lambda stage: saved(stage, parks=[park(stage, stage.blocking, new=False)]),
    ),
    "a save of what is done": ("delete", "parked", lambda stage: saved(stage, done_ids=[stage.dead])),
    "a replay": ("update", "parked", run("select partbox.replay('default', array[%(dead)s])")),
    "a replay that is told": ("update", "partition", run("select partbox.replay('default', array[%(dead)s])")),
    "a discard": ("update", "parked", run("select partbox.discard('default', array[%(dead)s])")),
    "a discard that is told": ("update", "partition", run("select partbox.discard('default', array[%(dead)s])")),
    "a retry": ("update", "parked", run("select partbox.retry_now('default', 'Order', '2')")),
    "a retry that is told": ("update", "partition", run("select partbox.retry_now('default', 'Order', '2')")),
    "a skip": ("update", "parked", run("select partbox.skip('default', 'Order', '2', 'why', 99)")),
    "a skip that is told": ("update", "partition", run("select partbox.skip('default', 'Order', '2', 'why', 99)")),
    "a pause": ("update", "subscription", run("select partbox.subscription_pause('default')")),
    "a pause that takes all": ("update", "partition", run("select partbox.subscription_pause('default')")),
    "a drop": ("delete", "subscription", paused("select partbox.subscription_drop('default')")),
    "a drop of cursors": ("delete", "partition", paused("select partbox.subscription_drop('default')")),
    "a drop of parked rows": ("delete", "parked", paused("select partbox.subscription_drop('default')")),
    "a start again": ("update", "partition", paused("select partbox.subscription_replay('default', 1, null, true)")),
    "a start again that unparks": (
        "delete",
        "parked",
        paused("select partbox.subscription_replay('default', 1, null, true)"),
    ),
    "a start again that resumes": (
        "update",
        "subscription",
        paused("select partbox.subscription_replay('default', 1, null, true)"),
    ),
    "a purge of dead ones": ("delete", "parked", run("select partbox.purge_dead(0, 9, '{0,0}', false)")),
    "a purge of records": ("delete", "record", run("select partbox.purge_records(-1, 0, 9, '{0,0}', false)")),
    "a purge that is noted": ("insert", "meta", run("select partbox.purge_records(-1, 0, 9, '{0,0}', false)")),
    "a purge of keys": ("delete", "idempotency", run("select partbox.purge_keys(-1, 9, '{0,0}', false)")),
    "a purge of actions": ("delete", "action", run("select partbox.purge_rows('action', -1, 9, '{0,0}', false)")),
    "a purge of the inbox": ("delete", "inbox", run("select partbox.purge_inbox(-1, 9, '{0,0}', false)")),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRITES)
def test_every_write_that_a_trigger_suppresses_is_an_error(stage: Stage, name: str) -> None:
    event, table, write = WRITES[name]
    conn = stage.conn
    conn.execute("insert into partbox.idempotency (key, event_id) values ('k', gen_random_uuid())")
    conn.execute("insert into partbox.inbox (consumer, event_id) values ('c', gen_random_uuid())")
    conn.execute("insert into partbox.action (who, action) values ('me', 'purge')")
    conn.execute("update partbox.instance set draining = true" if "uncharges" in name else "select")
    conn.execute("update partbox.parked set started_at = clock_timestamp() where state = 'retrying'")
    if table in ("record", "meta"):
        conn.execute("delete from partbox.parked")
    before = conn.execute(f"select t::text from partbox.{table} t order by 1").fetchall()
    conn.execute(DROPS.format(event, table))
    with pytest.raises(ObjectNotInPrerequisiteState, match=KEPT.format(table)):
        write(stage)
    if not name.startswith(("a drop", "a start", "a burial of an expired")):
        assert conn.execute(f"select t::text from partbox.{table} t order by 1").fetchall() == before


@pytest.mark.parametrize("name", ["a save that parks again", "a plan", "a heartbeat of one"])
def test_every_write_that_a_rule_suppresses_is_an_error(stage: Stage, name: str) -> None:
    event, table, write = WRITES[name]
    stage.conn.execute(f"create rule drops as on {event} to partbox.{table} do instead nothing")
    with pytest.raises(psycopg.Error, match="rule"):
        write(stage)


def test_a_parked_row_that_is_gone_meanwhile_is_no_error(stage: Stage) -> None:
    """An operator has discarded it, or the letter of it was replayed."""
    stage.conn.execute("delete from partbox.parked where record_id = %s", [stage.blocking])
    saved(stage, parks=[park(stage, stage.blocking, new=False)], done_ids=[stage.blocking])


def test_a_segment_is_not_emptied_if_its_dead_records_cannot_be_put_back(stage: Stage) -> None:
    conn = stage.conn
    conn.execute("delete from partbox.parked where state <> 'dead'")
    conn.execute("update partbox.parked k set partition = r.partition from partbox.record r where r.id = k.record_id")
    ranges = conn.execute("select max(upper) from partbox.segment_ranges()").fetchone()
    assert ranges is not None
    conn.execute("select setval('partbox.record_id_seq', %s)", [ranges[0]])
    conn.execute("update partbox.partition set last_id = %s, floor_id = %s", [ranges[0], ranges[0]])
    conn.execute(DROPS.format("insert", "record"))
    with pytest.raises(ObjectNotInPrerequisiteState, match=KEPT.format("record")):
        conn.execute("select partbox.segment_empty(0, null)")
    assert conn.execute("select count(*) from partbox.record").fetchone() == (2,)


def test_a_release_that_a_trigger_suppresses_is_an_error_as_with_any_save(stage: Stage) -> None:
    row = cursors.take_up_partitions(stage.conn, SCHEMA, DEFAULT, stage.me, {3: stage.epochs[3]})[0]
    stage.conn.execute(DROPS.format("update", "partition"))
    with pytest.raises(ObjectNotInPrerequisiteState, match="nothing was saved"):
        save(stage.conn, stage.me, [saving(row, release=True)])


def test_a_subscription_is_not_created_if_a_trigger_suppresses_its_cursors(conn: Conn) -> None:
    conn.execute(DROPS.format("insert", "partition"))
    with pytest.raises(ObjectNotInPrerequisiteState, match=KEPT.format("partition")):
        subscriptions.create(conn, SCHEMA, "audit", False, None, None)
    assert conn.execute("select count(*) from partbox.subscription").fetchone() == (1,)


def test_archiving_does_not_begin_if_a_trigger_suppresses_its_note(conn: Conn) -> None:
    conn.execute(DROPS.format("insert", "meta"))
    with pytest.raises(PartboxError, match="keeps rows out of table meta"):
        archive.begin_archive(conn, SCHEMA)


def test_a_rebase_is_refused_while_a_trigger_suppresses_writes_to_the_log(conn: Conn) -> None:
    conn.execute(DROPS.format("update", "record"))
    with pytest.raises(PartboxError, match="the trigger drops on table record"):
        rebase.rebase_schema(conn, SCHEMA, {}, force=True)
    conn.execute("drop trigger drops on partbox.record")
    assert not isinstance(rebase.rebase_schema(conn, SCHEMA, {}, force=True), str)
