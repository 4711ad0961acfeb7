"""What operators did: every act that changes something leaves a note with it, and nothing else does."""

import getpass
import socket
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ownership import SCHEMA, assign, claim, join
from planted_records import Planter
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege, ObjectNotInPrerequisiteState
from roles import Cast
from run_size import examples

from partbox import Outbox
from partbox.db.operator import actions, archive, dead
from partbox.db.operator.actions import LongAction, OperatorAction, acting_as, current_actor
from partbox.errors import PartboxError, SchemaError
from partbox.imports import passes
from partbox.operations.purge import purge
from partbox.operations.timeline import timeline
from partbox.settings import load

HOSTILE = "\x1b[31meve\x1b]0;owned\x07\r\n2026-01-01 admin replayed 7\u202e"
TABLE = "create table old (id bigint primary key, kind text, body jsonb)"
ROWS = "insert into old select g, 'Placed', '{}' from generate_series(1, %s) as g"
KEY = "insert into partbox.idempotency select 'k', gen_random_uuid(), now() - interval '8 d'"
COLUMNS = {"event_type": "kind", "payload": "body"}


def noted(outbox: Outbox) -> list[tuple[str, str | None, dict[str, Any], int]]:
    """The actions, oldest first."""
    return [(each.action, each.subscription, each.target, each.count) for each in reversed(outbox.actions.list())]


def test_an_act_on_dead_records_names_them(plant, outbox):
    first, second, *others = (plant.park(key) for key in "abcde")
    outbox.dead.replay(first)
    outbox.dead.discard(second)
    outbox.dead.replay_all("Placed")
    filters = dict.fromkeys(("aggregate_type", "aggregate_id", "older_than", "group", "since", "until"))
    assert noted(outbox) == [
        ("dead replay", "default", {"record_ids": [first]}, 1),
        ("dead discard", "default", {"record_ids": [second]}, 1),
        ("dead replay", "default", {"record_ids": others, "filters": {"event_type": "Placed"}}, 3),
    ]
    assert set(filters).isdisjoint(outbox.actions.list(1)[0].target["filters"]), "only what was asked for"


def test_an_act_on_an_aggregate_names_it_and_the_record_that_it_waited_for(plant, outbox):
    late, bad = plant.park("a", "retrying", blocks=True, due=60), plant.park("b", "deferred", blocks=True, due=60)
    outbox.blocked.retry_now("Order", "a")
    outbox.blocked.skip("Order", "b", "its customer is gone")
    of = {"aggregate_type": "Order", "state": "retrying"}
    assert noted(outbox) == [
        ("blocked retry", "default", {**of, "aggregate_id": "a", "record_ids": [late]}, 1),
        (
            "blocked skip",
            "default",
            {**of, "state": "deferred", "aggregate_id": "b", "record_ids": [bad]},
            1,
        ),
    ]
    assert [each.reason for each in outbox.actions.list()] == ["its customer is gone", None]


def test_acts_on_subscriptions_are_noted_together_with_the_pauses_that_they_make(plant, outbox):
    outbox.subscriptions.create("audit", "now", ["Placed"])
    record = plant.park("a", subscription="audit")
    outbox.subscriptions.pause("audit")
    outbox.subscriptions.resume("audit")
    outbox.subscriptions.replay("audit", from_id=record)
    outbox.subscriptions.drop("audit")
    assert [(action, target) for action, _, target, _ in noted(outbox)] == [
        ("subscription create", {"start": "now", "types": ["Placed"]}),
        ("subscription pause", {}),
        ("subscription resume", {}),
        ("subscription pause", {"before": "replay"}),
        ("subscription replay", {"from_id": record, "resume": True}),
        ("subscription pause", {"before": "drop"}),
        ("subscription drop", {}),
    ]
    assert {each.subscription for each in outbox.actions.list(subscription="audit")} == {"audit"}, "though it is gone"


def test_a_replay_that_fails_has_paused_and_resumed_and_both_are_noted(conn, outbox):
    me, *_ = join(conn)
    assign(conn, me)
    claim(conn, me)
    with pytest.raises(PartboxError, match="still owned"):
        outbox.subscriptions.replay("default", from_time="2020-01-01T00:00Z", timeout=0)
    assert noted(outbox) == [
        ("subscription pause", "default", {"before": "replay"}, 1),
        ("subscription resume", "default", {}, 1),
    ]


def test_the_end_of_an_archive_a_rebase_and_a_purge_by_hand_are_noted(conn, outbox):
    archive.begin_archive(conn, SCHEMA)
    archive.begin_archive(conn, SCHEMA)
    assert archive.end_archive(conn, SCHEMA)
    assert not archive.end_archive(conn, SCHEMA)
    conn.execute(KEY)
    assert outbox.purge(dry_run=True).keys == 1
    assert outbox.purge().keys == 1
    outbox.purge()
    outbox.rebase(force=True)
    (begin, _, none, _), (end, _, _, _), purged, (rebase, _, moved, _) = noted(outbox)
    assert (begin, none, end, rebase) == ("archive begin", {}, "archive end", "rebase")
    assert moved["subscriptions"] == {"default": 256}
    kept = {"retain_done": "7d", "retain_dead": "30d", "retain_keys": "7d", "retain_inbox": "30d"}
    kept |= {"retain_history": "3d", "retain_actions": "90d"}
    assert purged == ("purge", None, kept, 1)


def test_a_purge_of_all_notes_by_hand_leaves_a_note_of_itself(conn, dsn, plant, outbox):
    conn.execute(KEY)
    outbox.dead.replay(plant.park())
    assert Outbox(dsn, retain_actions=0).purge().history >= 1
    ((action, _, target, count),) = noted(outbox)
    assert (action, target["retain_actions"], count >= 1) == ("purge", "0s", True)


def test_a_purge_by_workers_is_not_noted_as_an_act_of_an_operator(conn, dsn, outbox):
    conn.execute(KEY)
    assert purge(lambda: dsn, load()).keys == 1
    assert noted(outbox) == []


def test_an_act_that_changes_nothing_leaves_no_note(plant, outbox):
    plant.park("a", "held", blocks=True)
    assert not outbox.blocked.retry_now("Order", "a").changed
    assert not outbox.subscriptions.resume("default")
    assert outbox.dead.replay_all() == 0
    for refused in (
        lambda: outbox.dead.discard(4711),
        lambda: outbox.blocked.skip("Order", "z"),
        lambda: outbox.subscriptions.create("default"),
        lambda: outbox.subscriptions.pause("nobody"),
    ):
        with pytest.raises(PartboxError):
            refused()
    assert noted(outbox) == []


def test_chunks_of_a_replay_are_noted_as_they_commit_also_if_it_is_stopped(plant, outbox, monkeypatch):
    monkeypatch.setattr(dead, "CHUNK_SIZE", 2)
    ids = [plant.park(key) for key in "abcdef"]

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.dead.replay_all(progress=stop)
    assert [(target["record_ids"], count) for _, _, target, count in noted(outbox)] == [(ids[:2], 2), (ids[2:4], 2)]


def test_an_import_is_one_note_that_counts_what_has_committed(conn, outbox, monkeypatch):
    monkeypatch.setattr(passes, "BATCH_ROWS", 2)
    conn.execute(TABLE)
    conn.execute(ROWS, [5])
    assert outbox.import_from("old", COLUMNS, {"aggregate_type": "Order"}).imported == 5
    conn.execute("insert into old values (6, 'Placed', '{}'), (7, 'Placed', '{}'), (8, '', '{}')")
    with pytest.raises(PartboxError, match=r"row 8 of public\.old"):
        outbox.import_from("old", COLUMNS, {"aggregate_type": "Order"})
    table = {"table": "public.old"}
    assert noted(outbox) == [("import", None, table, 5), ("import", None, table, 2)]


ACTS: dict[str, Callable[[Outbox, int], object]] = {
    "replay": lambda outbox, id: outbox.dead.replay(id),
    "discard": lambda outbox, id: outbox.dead.discard(id),
    "retry": lambda outbox, id: outbox.blocked.retry_now("Order", "a"),
    "skip": lambda outbox, id: outbox.blocked.skip("Order", "a"),
    "pause": lambda outbox, id: outbox.subscriptions.pause("default"),
    "create": lambda outbox, id: outbox.subscriptions.create("audit"),
    "rebase": lambda outbox, id: outbox.rebase(force=True),
    "import": lambda outbox, id: outbox.import_from("old", COLUMNS, {"aggregate_type": "Order"}),
}
STATE = """
select (select json_agg(k order by k.record_id) from partbox.parked k)::text,
       (select json_agg(s order by s.name) from partbox.subscription s)::text,
       (select json_agg(p order by p.subscription, p.partition) from partbox.partition p)::text,
       (select count(*) from partbox.record), (select count(*) from partbox.imported)
"""


@pytest.mark.parametrize("act", ACTS)
def test_an_act_and_its_note_are_both_there_or_neither(conn, plant, outbox, act):
    record = plant.park("a", blocks=True)
    conn.execute(TABLE)
    conn.execute(ROWS, [1])
    conn.execute("create function partbox.drops() returns trigger language plpgsql as 'begin return null; end'")
    conn.execute("create trigger drops before insert on partbox.action for each row execute function partbox.drops()")
    before = conn.execute(STATE).fetchone()
    with pytest.raises((ObjectNotInPrerequisiteState, PartboxError), match="keeps rows of table action"):
        ACTS[act](outbox, record)
    assert conn.execute(STATE).fetchone() == before


# Who.


def test_a_note_names_the_user_the_host_and_the_database_role(plant, outbox, conn):
    outbox.dead.replay(plant.park())
    (found,) = outbox.actions.list()
    assert found.who == f"{getpass.getuser()}@{socket.gethostname()} as {conn.info.user}"
    assert abs((found.at - conn.execute("select clock_timestamp()").fetchone()[0]).total_seconds()) < 600


def test_a_note_names_the_identity_that_a_program_gave_and_the_database_role(plant, outbox, cast: Cast):
    outbox.subscriptions.pause("default")
    with outbox.acting_as("alice@example.com"):
        Outbox(cast.of("worker")).dead.replay(plant.park())
        with outbox.acting_as(None):
            Outbox(cast.of("worker")).dead.replay(plant.park())
    newest, alice, _ = (each.who for each in outbox.actions.list())
    assert alice == f"alice@example.com as {cast.worker}"
    assert newest == f"{getpass.getuser()}@{socket.gethostname()} as {cast.worker}"


def test_a_note_names_the_role_that_logged_in_and_not_one_that_was_set_later(plant, outbox, conn, cast: Cast):
    Outbox(make_conninfo(conn.info.dsn, options=f"-c role={cast.worker}")).dead.replay(plant.park())
    assert outbox.actions.list()[0].who.endswith(f" as {conn.info.user}")


def test_an_identity_ends_with_its_block_and_is_that_of_one_thread():
    usual, others = current_actor(), []
    with acting_as("alice"):
        thread = threading.Thread(target=lambda: others.append(current_actor()))
        thread.start()
        thread.join()
        assert current_actor() == "alice"
    with pytest.raises(ZeroDivisionError):
        acting_as("alice")(lambda: 1 / 0)()
    assert (current_actor(), others) == (usual, [usual])


def test_acting_as_can_decorate_a_function():
    assert [acting_as(name)(current_actor)() for name in ("alice", "bob")] == ["alice", "bob"]


@pytest.mark.parametrize("identity", ["", " ", 7, b"alice", ["alice"]])
def test_an_identity_that_names_nobody_is_refused(identity):
    with pytest.raises(PartboxError, match=r"identity .* must be a text that names who acts"), acting_as(identity):
        pytest.fail("it was taken")


def test_a_user_by_a_hostile_name_is_one_printable_line_too(plant, outbox, monkeypatch):
    monkeypatch.setenv("LOGNAME", HOSTILE)
    outbox.dead.replay(plant.park())
    (who,) = [each.who for each in outbox.actions.list()]
    assert who.isprintable()
    assert who.startswith(r"\x1b[31meve")


def test_a_process_whose_user_has_no_name_acts_all_the_same(plant, outbox, monkeypatch):
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(actions, "getuser", nameless)
    outbox.dead.replay(plant.park())
    assert outbox.actions.list()[0].who.startswith("process ")


@given(identity=st.text(st.characters(), min_size=1).filter(str.strip))
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_identity_is_noted_as_one_printable_line(conn, identity):
    with acting_as(identity):
        LongAction(SCHEMA, "purge", {"reason": HOSTILE}).add_changes(conn, 1)
    ((found,),) = conn.execute("delete from partbox.action returning who").fetchall()
    assert found.isprintable()
    assert found.endswith(f" as {conn.info.user}")


def test_hostile_targets_are_noted_unchanged_and_never_run_as_sql(plant, outbox):
    hostile = f"{HOSTILE}'); drop table partbox.action; --%s {{act}}"
    plant.park(hostile, "retrying", blocks=True, due=60)
    outbox.blocked.skip("Order", hostile, hostile)
    (found,) = outbox.actions.list()
    assert (found.target["aggregate_id"], found.reason) == (hostile, hostile)


# Why.


REASON = "INC-4711: a bad deploy"


def test_every_act_is_noted_with_the_reason_that_was_given(conn, plant, outbox):
    """An act of several statements or transactions too, and one by a publisher's function."""
    first, *_ = [plant.park(key) for key in "abc"]
    plant.park("d", "retrying", blocks=True, due=60)
    plant.park("e", "retrying", blocks=True, due=60)
    conn.execute(TABLE)
    conn.execute(ROWS, [1])
    conn.execute(KEY)
    with outbox.acting_as(None, reason=REASON):
        outbox.dead.replay(first)
        outbox.dead.discard_all()
        outbox.blocked.retry_now("Order", "d")
        outbox.blocked.skip("Order", "e")
        outbox.subscriptions.create("audit")
        outbox.subscriptions.replay("audit", from_id=first)
        outbox.subscriptions.drop("audit")
        outbox.limits.set("ship", rate="1/s")
        outbox.limits.reset("ship")
        outbox.import_from("old", COLUMNS, {"aggregate_type": "Order"})
        outbox.purge()
        with psycopg.connect(conn.info.dsn) as own:
            later = outbox.publish(own, "Placed", {}, aggregate_type="Order", aggregate_id=1, deliver_after="1h")
            assert outbox.cancel(own, later)
    found = outbox.actions.list()
    assert {each.action for each in found} >= {"cancel", "import", "purge", "subscription drop", "limit reset"}
    assert {each.reason for each in found} == {REASON}
    ((told,),) = conn.execute("select distinct error from partbox.attempt where outcome = 'skipped'").fetchall()
    assert told == REASON
    outbox.subscriptions.pause("default")
    assert outbox.actions.list(1)[0].reason is None


def test_the_history_of_a_record_says_why_an_operator_has_replayed_it(plant, outbox):
    record = plant.park()
    with outbox.acting_as("alice", reason=REASON):
        outbox.dead.replay(record)
    (found,) = outbox.records.find(record=record).records
    assert any("replayed by alice" in each.text and each.text.endswith(f": {REASON}") for each in timeline(found))


@pytest.mark.parametrize("reason", ["", " ", 7, b"why"])
def test_a_reason_that_says_nothing_is_refused(reason):
    with pytest.raises(PartboxError, match=r"reason .* must be a text that says why"), acting_as("a", reason=reason):
        pytest.fail("it was taken")


def test_a_hostile_reason_is_one_printable_line_without_secrets(plant, outbox):
    with outbox.acting_as("alice", reason=f"{HOSTILE} postgresql://me:geheim@host/shop {'x' * 1_000}"):
        outbox.dead.replay(plant.park())
    (reason,) = [each.reason for each in outbox.actions.list()]
    assert reason is not None
    assert reason.isprintable()
    assert "geheim" not in reason
    assert len(reason) < 700


# Rights.


def test_a_role_that_may_not_write_notes_cannot_act(plant, outbox, conn, cast: Cast):
    record = plant.park()
    conn.execute(f"revoke insert on partbox.action from {cast.worker}")
    with pytest.raises(InsufficientPrivilege, match="table action"):
        Outbox(cast.of("worker")).dead.discard(record)
    assert plant.row(record)["state"] == "dead"


def test_a_worker_role_can_read_notes_but_cannot_change_who_when_or_what_they_say(plant, cast: Cast):
    outbox = Outbox(cast.of("worker"))
    outbox.dead.replay(plant.park())
    assert len(outbox.actions.list()) == 1
    with psycopg.connect(cast.of("worker"), autocommit=True) as conn:
        for column in ("who", "at", "action", "target", "reason"):
            with pytest.raises(InsufficientPrivilege):
                conn.execute(f"update partbox.action set {column} = default")
        with pytest.raises(InsufficientPrivilege):
            conn.execute("insert into partbox.action (at, who, action) values ('2020-01-01Z', 'bob', 'purge')")
    for role in ("publisher", "stranger"):
        with psycopg.connect(cast.of(role), autocommit=True) as conn, pytest.raises(InsufficientPrivilege):
            conn.execute("select from partbox.action")


@pytest.mark.parametrize("pooler", [False, True])
def test_a_publisher_who_may_create_functions_cannot_have_an_operator_run_them(plant, dsn, conn, cast: Cast, pooler):
    """One with exactly the types of a statement would be preferred to PostgreSQL's own, of any types. Behind a pooler,
    a session of partbox keeps the `search_path` of its role."""
    outbox = Outbox(dsn, pooler=pooler)
    conn.execute("grant create on schema public to public")
    with psycopg.connect(cast.of("publisher"), autocommit=True) as own:
        body = "language plpgsql as $$ begin raise exception 'hijacked by %', current_user; end $$"
        own.execute(f"create function public.concat(text, text, name) returns text {body}")
        own.execute(f"create function public.joined(text, name) returns text {body}")
        own.execute("create operator public.|| (leftarg = text, rightarg = name, function = public.joined)")
        own.execute(f"create function public.to_jsonb(record) returns jsonb {body}")
    outbox.dead.replay(plant.park())
    assert [each.action for each in outbox.actions.list()] == ["dead replay"]


# Lists.


@pytest.fixture
def history(plant: Planter, outbox: Outbox, conn: psycopg.Connection) -> Outbox:
    """A replay of a record three hours ago, then a pause, a skip and a replay in `audit`."""
    outbox.subscriptions.create("audit")
    conn.execute("delete from partbox.action")
    outbox.dead.replay(plant.park())
    conn.execute("update partbox.action set at = clock_timestamp() - interval '3 h'")
    outbox.subscriptions.pause("audit")
    plant.park("b", "retrying", blocks=True, due=60)
    outbox.blocked.skip("Order", "b")
    outbox.subscriptions.replay("audit", from_id=1)
    return outbox


def test_actions_are_listed_newest_first_and_can_be_filtered(history):
    def words(**asked: Any) -> list[str]:
        return [each.action for each in history.actions.list(**asked)]

    everything = ["subscription replay", "blocked skip", "subscription pause", "dead replay"]
    assert words() == everything
    assert words(limit=2) == everything[:2]
    assert words(action="replay") == ["subscription replay", "dead replay"]
    assert words(action="dead replay") == ["dead replay"]
    assert words(action="rebase") == []
    assert words(subscription="audit") == ["subscription replay", "subscription pause"]
    assert words(since="2h") == everything[:3]
    assert words(until="2h") == ["dead replay"]
    (oldest,) = history.actions.list(until="2h")
    assert words(since=oldest.at, until="2h") == ["dead replay"]
    assert isinstance(oldest, OperatorAction)


@pytest.mark.parametrize("asked", [{"action": "replya"}, {"action": "dead"}, {"action": ""}, {"action": HOSTILE}])
def test_an_unknown_action_is_refused_with_the_list_of_known_ones(outbox, asked):
    with pytest.raises(PartboxError, match=r"action .* is none: (did you mean 'replay'|there are )") as refused:
        outbox.actions.list(**asked)
    assert str(refused.value).isprintable()


def test_a_subscription_that_there_never_was_is_refused(outbox):
    with pytest.raises(SchemaError, match="'audti' does not exist in schema 'partbox'"):
        outbox.actions.list(subscription="audti")
    with pytest.raises(PartboxError, match="NUL"):
        outbox.actions.list(subscription="a\0")
    with pytest.raises(PartboxError, match="limit 0 must be"):
        outbox.actions.list(0)
    assert outbox.actions.list(subscription="default") == []
