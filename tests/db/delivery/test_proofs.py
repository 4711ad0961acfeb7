"""An answer that may be less than everything is an error, statement by statement."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from ownership import DEFAULT, SCHEMA, Conn, join, seize
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege, ObjectNotInPrerequisiteState, RaiseException, UndefinedFunction
from roles import Cast, cast_of
from waiting import eventually

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import cursors, idle_check, instances, parked, proof, records, server_incarnation
from partbox.db.delivery.proof import PartialReadError
from partbox.db.operator import archive
from partbox.db.sql import load_query
from partbox.protocol.cursor import ReadRequest
from partbox.protocol.horizon import Page
from partbox.protocol.quick_poll import to_bits
from partbox.protocol.rows import CursorSave, ParkedSave

START = Page("1:1:", 0)
ONE = "insert into partbox.record (partition, event_id, event_type) values (3, gen_random_uuid(), 'T')"


@pytest.fixture
def cast(dsn) -> Iterator[Cast]:
    with cast_of(dsn) as cast:
        yield cast


def began(session: Conn) -> Conn:
    """The session, begun as a worker's."""
    use_raw_loaders(session)
    server_incarnation.note_incarnation(session, server_incarnation.read_incarnation(session, SCHEMA))
    proof.begin_baseline(session, SCHEMA)
    return session


@contextmanager
def worker(cast: Cast, *, pooler: bool = False, prepared: bool = False) -> Iterator[Conn]:
    with connect(cast.of("worker"), lease=6, pooler=pooler, prepared=prepared) as session:
        yield began(session)


def poll(conn: Conn) -> object:
    return records.poll_page(conn, SCHEMA, [ReadRequest(3, 0, 10, START, None, None)], None, lo=0, hi=1_000)


def quick(conn: Conn) -> object:
    return records.read_new_records(conn, SCHEMA, START, to_bits({3}))


def look(conn: Conn) -> object:
    return idle_check.run_check(conn, SCHEMA, [])


def bodies(conn: Conn) -> object:
    return records.load_bodies(conn, SCHEMA, [(3, 1)])


def payloads(conn: Conn) -> object:
    return records.load_payloads(conn, SCHEMA, [(3, 1)], 100)


def blocking(conn: Conn) -> object:
    return parked.list_blocking(conn, SCHEMA, DEFAULT, [3])


def ahead(conn: Conn) -> object:
    return parked.list_ahead(conn, SCHEMA, DEFAULT, [3])


def archived(conn: Conn) -> object:
    return archive.read_next_rows(conn, SCHEMA, 0, 100, 0.0, 10, 1_000)


READ = {poll: "record", quick: "record", bodies: "record", payloads: "record", blocking: "parked", ahead: "parked"}


@pytest.mark.thorough
@pytest.mark.parametrize("way", [{}, {"pooler": True}, {"prepared": True}], ids=["direct", "pooler", "prepared"])
@pytest.mark.parametrize(("ask", "table"), [*READ.items(), (archived, "record")])
def test_row_security_is_an_error_and_hides_no_rows_behind_a_pooler_either(
    conn: Conn, cast: Cast, ask: Callable[[Conn], object], table: str, way: dict[str, bool]
) -> None:
    with worker(cast, **way) as session:
        ask(session)
        conn.execute(f"alter table partbox.{table} enable row level security")
        with pytest.raises((InsufficientPrivilege, PartialReadError), match=r"row.level security|row security"):
            ask(session)


def test_row_security_is_an_error_behind_an_undeclared_pooler_that_drops_options(
    conn: Conn, cast: Cast, monkeypatch
) -> None:
    monkeypatch.setattr("partbox.db.connect.ROW_SECURITY_OPTION", "-c row_security=on")
    with worker(cast) as session:
        conn.execute("alter table partbox.parked enable row level security")
        with pytest.raises(InsufficientPrivilege, match="row-level security"):
            blocking(session)


@pytest.mark.parametrize(("lent", "setting"), [(False, "off"), (True, "on")])
def test_row_security_is_off_in_sessions_of_partbox_and_unchanged_in_those_of_applications(
    conn: Conn, cast: Cast, lent: bool, setting: str
) -> None:
    with connect(cast.of("worker"), lease=6, is_lent=lent) as session:
        assert session.execute("show row_security").fetchone() == (setting,)


@pytest.mark.parametrize("ask", [poll, quick, look])
def test_a_role_that_may_not_read_the_id_sequence_gets_an_error(
    conn: Conn, cast: Cast, ask: Callable[[Conn], object]
) -> None:
    with worker(cast) as session:
        ask(session)  # none is drawn yet, which is no error
        conn.execute(f'revoke all on sequence partbox.record_id_seq from "{cast.worker}"')
        with pytest.raises(InsufficientPrivilege, match="permission denied for sequence record_id_seq"):
            ask(session)


def test_a_role_that_may_not_read_the_id_sequence_gets_an_error_in_functions_too(conn: Conn, cast: Cast) -> None:
    conn.execute(ONE)
    conn.execute(f'revoke all on sequence partbox.record_id_seq from "{cast.worker}"')
    with psycopg.connect(cast.of("worker"), autocommit=True) as session, pytest.raises(InsufficientPrivilege):
        session.execute("select partbox.segment_holds(0, 10, null)")


@pytest.mark.parametrize("ask", [poll, quick, look])
def test_a_sequence_that_has_gone_backwards_ends_the_session(
    dsn: str, conn: Conn, ask: Callable[[Conn], object]
) -> None:
    conn.execute("select setval('partbox.record_id_seq', 9)")
    with connect(dsn, lease=6) as session:
        ask(began(session))
        conn.execute("select setval('partbox.record_id_seq', 8)")
        with pytest.raises(PartialReadError, match="the number of ids drawn fell from 9 to 8"):
            ask(session)
        assert session.closed


USED = {
    "a cursor": "update partbox.partition set last_id = 7 where partition = 3",
    "a floor": "update partbox.partition set floor_id = 7 where partition = 3",
    "the log": "insert into partbox.record (id, partition, event_id, event_type) values (7, 3, gen_random_uuid(), 'T')",
    "a parked event": "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type,"
    " state, blocks) values ('default', 7, 3, 'A', 'T', 'dead', false)",
    "a purge": "insert into partbox.meta (key, value) values ('purged_id', '7')",
    "an archive": "insert into partbox.meta (key, value) values ('archived_id', '7')",
}


@pytest.mark.parametrize("user", USED)
def test_a_session_does_not_begin_while_the_sequence_is_behind_an_id_that_is_used(
    dsn: str, conn: Conn, user: str
) -> None:
    conn.execute(USED[user])
    with connect(dsn, lease=6) as session:
        with pytest.raises(PartialReadError, match="record_id_seq is at 0, and ids up to 7 are used") as told:
            proof.check_none_hidden(session, SCHEMA, DEFAULT)
        conn.execute(str(told.value).split("`")[1])
        proof.check_none_hidden(session, SCHEMA, DEFAULT)
        assert conn.execute("select nextval('partbox.record_id_seq')").fetchone() == (8,)


def test_finding_the_greatest_id_probes_only_segments_that_take_ids_not_drawn_yet(conn: Conn) -> None:
    conn.execute(ONE)
    conn.execute("set enable_seqscan = off; set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan")
    conn.execute("select partbox.segment_add(10000000, 20000000), setval('partbox.record_id_seq', 15000000)")
    plan = "\n".join(line for (line,) in conn.execute(b"explain (analyze) " + load_query("ids", SCHEMA), {}))
    assert re.search(r"record_1_id_idx .*never executed", plan), plan
    assert re.search(r"Only Scan Backward using record_10000000_id_idx", plan), plan
    assert "Sort Method" not in plan


@pytest.mark.parametrize("ask", [poll, quick])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_page_that_was_cut_on_its_way_is_an_error(dsn: str, conn: Conn, ask, kept: int, monkeypatch) -> None:
    """By an extension or a proxy that puts a LIMIT into statements."""
    conn.execute(ONE)
    fetch = records.fetch
    monkeypatch.setattr(records, "fetch", lambda *arguments, **named: fetch(*arguments, **named)[:kept])
    with connect(dsn, lease=6) as session, pytest.raises(PartialReadError, match="a page of the log was cut"):
        ask(began(session))


REPLACED = (PartialReadError, ObjectNotInPrerequisiteState)
PREPARED = pytest.mark.parametrize("prepared", [False, True], ids=["direct", "prepared"])


@PREPARED
@pytest.mark.parametrize("ask", [poll, quick, look])
def test_another_table_in_the_place_of_the_log_ends_the_session(dsn: str, conn: Conn, ask, prepared: bool) -> None:
    with connect(dsn, lease=6, prepared=prepared) as session:
        ask(began(session))
        with conn.transaction():
            conn.execute("alter table partbox.record rename to other")
            conn.execute("create table partbox.record (like partbox.other)")
        with pytest.raises(REPLACED, match=r"place of: record|taken its place") as seen:
            ask(session)
        assert proof.ends_session(seen.value)


@PREPARED
@pytest.mark.parametrize("ask", [poll, quick, look])
def test_a_sequence_that_has_replaced_that_of_the_log_ends_the_session(
    dsn: str, conn: Conn, ask, prepared: bool
) -> None:
    """The ids that it has drawn are a floor: events that get their ids from the old one would lie below."""
    with connect(dsn, lease=6, prepared=prepared) as session:
        ask(began(session))
        with conn.transaction():
            conn.execute("alter sequence partbox.record_id_seq rename to other_seq")
            conn.execute("create sequence partbox.record_id_seq start 1000000")
            conn.execute("select nextval('partbox.record_id_seq')")
        with pytest.raises(REPLACED, match=r"place of: record_id_seq|taken its place") as seen:
            ask(session)
        assert proof.ends_session(seen.value)


@PREPARED
@pytest.mark.parametrize("ask", [poll, quick])
def test_polls_fail_while_a_segment_that_they_need_is_detached_by_hand(dsn: str, conn: Conn, ask, prepared) -> None:
    conn.execute(ONE)
    with connect(dsn, lease=6, prepared=prepared) as session:
        before = ask(began(session))
        conn.execute("alter table partbox.record detach partition partbox.record_1")
        for _ in range(2):
            with pytest.raises(ObjectNotInPrerequisiteState, match="some cursor has not passed: record_1"):
                ask(session)
        conn.execute(
            "alter table partbox.record attach partition partbox.record_1 for values from (minvalue) to (10000000)"
        )
        assert ask(session).rows == before.rows


@PREPARED
@pytest.mark.parametrize("ask", [poll, quick])
def test_a_poll_fails_if_a_segment_is_detached_while_the_poll_waits(dsn: str, conn: Conn, ask, prepared) -> None:
    """The poll has a snapshot by then, for which the segment is still there, and its plan has it no more."""
    conn.execute(ONE)
    with connect(dsn, lease=60, prepared=prepared) as session, ThreadPoolExecutor(1) as beside:
        ask(began(session))
        with conn.transaction():
            conn.execute("lock table partbox.record in access exclusive mode")
            asked = beside.submit(ask, session)
            waits = "select exists (select from pg_locks where pid = %s and not granted)"
            eventually(lambda: conn.execute(waits, [session.info.backend_pid]).fetchone() == (True,))
            conn.execute("alter table partbox.record detach partition partbox.record_1")
        with pytest.raises(ObjectNotInPrerequisiteState, match="some cursor has not passed: record_1"):
            asked.result(120)


@pytest.mark.parametrize("name", ["poll", "quick"])
def test_the_proof_of_the_log_is_a_constant_in_the_plan_of_a_poll(conn: Conn, name: str) -> None:
    """So it costs nothing where nothing has changed."""
    text = re.sub(r"%\((above|end)\)s", "0", load_query(name, SCHEMA).decode())
    asked = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
    plan = conn.execute(f"explain (verbose) {text}", asked).fetchall()
    assert "log_planned" in text
    assert "log_planned" not in str(plan)


def test_detaching_a_segment_that_every_cursor_has_passed_is_no_error(dsn: str, conn: Conn) -> None:
    conn.execute(ONE)
    conn.execute("select setval('partbox.record_id_seq', 10000000)")
    conn.execute("update partbox.partition set last_id = 10000000, floor_id = 10000000")
    with connect(dsn, lease=6) as session:
        began(session)
        poll(session)
        conn.execute("alter table partbox.record detach partition partbox.record_1")
        poll(session)
        proof.check_intact(session, SCHEMA)


# What a save writes and nobody keeps is lost, for the cursor passes it.

DROPS = """
create function drops() returns trigger language plpgsql as 'begin return null; end';
create trigger drops before {} on partbox.{} for each row execute function drops()
"""


def parking(number: int) -> ParkedSave:
    return ParkedSave(3, number, "A", "a", "T", "dead", blocks=False, attempts=1)


def saved(session: Conn, me, epoch: int, **more) -> object:
    return cursors.save(session, SCHEMA, DEFAULT, me, [CursorSave(3, epoch, "5:5:", 4, 4, False)], **more)


@pytest.mark.parametrize(
    ("event", "table", "more"),
    [
        ("update", "partition", {}),
        ("insert", "parked", {"parks": [parking(2)]}),
        ("delete", "parked", {"done_ids": [1]}),
    ],
)
def test_a_save_saves_nothing_if_a_trigger_suppresses_a_part_of_it(dsn: str, conn: Conn, event, table, more) -> None:
    (me,) = join(conn)
    epoch = seize(conn, me, [3])[3].epoch
    with connect(dsn, lease=6) as session:
        began(session)
        saved(session, me, epoch, parks=[parking(1)])
        saved(session, me, epoch, parks=[parking(1)])  # it is parked already, which is no error
        conn.execute(DROPS.format(event, table))
        conn.execute("update partbox.partition set last_id = 0 where partition = 5")
        with pytest.raises(ObjectNotInPrerequisiteState, match=r"a trigger keeps .* nothing was saved"):
            saved(session, me, epoch, **more)
        assert not session.closed
    assert conn.execute("select record_id from partbox.parked").fetchall() == [(1,)]


@pytest.mark.parametrize("table", ["partition", "parked"])
def test_a_save_into_another_table_of_the_same_name_is_rolled_back(dsn: str, conn: Conn, table: str) -> None:
    (me,) = join(conn)
    epoch = seize(conn, me, [3])[3].epoch
    with connect(dsn, lease=6) as session:
        began(session)
        with conn.transaction():
            conn.execute(f"alter table partbox.{table} rename to other")
            conn.execute(f"create table partbox.{table} (like partbox.other including all)")
            conn.execute(f"insert into partbox.{table} select * from partbox.other")
        with pytest.raises(ObjectNotInPrerequisiteState, match="nothing was saved"):
            saved(session, me, epoch, parks=[parking(1)])
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
    assert conn.execute("select last_id from partbox.partition where partition = 3").fetchone() == (0,)


# Who deletes what nobody needs must know who needs it.


def hidden(conn: Conn, table: str) -> None:
    conn.execute(f"alter table partbox.{table} enable row level security")


def replaced(conn: Conn, table: str) -> None:
    with conn.transaction():
        conn.execute(f"alter table partbox.{table} rename to other")
        conn.execute(f"create table partbox.{table} (like partbox.other including all)")
        conn.execute(f"grant all on partbox.{table} to public")


@pytest.mark.parametrize("table", ["subscription", "partition", "parked", "meta"])
@pytest.mark.parametrize("hide", [hidden, replaced])
@pytest.mark.parametrize("pooler", [False, True], ids=["direct", "pooler"])
def test_a_purge_deletes_no_records_if_it_cannot_see_who_needs_them(
    conn: Conn, cast: Cast, hide, table, pooler
) -> None:
    conn.execute(ONE)
    hide(conn, table)
    refused = pytest.raises((InsufficientPrivilege, ObjectNotInPrerequisiteState, RaiseException, UndefinedFunction))
    with connect(cast.of("worker"), lease=6, pooler=pooler) as session, refused:
        session.execute("select partbox.purge_records(0, 0, 100, '{0,0}', false)")
    assert conn.execute("select count(*) from partbox.record").fetchone() == (1,)


def test_a_bury_frees_nothing_if_another_table_has_replaced_that_of_the_instances(conn: Conn, cast: Cast) -> None:
    (me,) = join(conn)
    seize(conn, me, [3])
    replaced(conn, "instance")
    with connect(cast.of("worker"), lease=6) as session, pytest.raises(ObjectNotInPrerequisiteState, match="instance"):
        instances.bury_instances(session, SCHEMA, [], known_dead=False)
    assert conn.execute("select owner from partbox.partition where partition = 3").fetchone() == (me,)


def test_functions_that_shadow_those_of_postgresql_in_the_search_path_are_never_called(dsn: str, conn: Conn) -> None:
    conn.execute("create schema evil")
    conn.execute(
        "create function evil.pg_visible_in_snapshot(xid8, pg_snapshot) returns boolean language sql as 'select true'"
    )
    conn.execute(
        "create function evil.pg_sequence_last_value(regclass) returns bigint language sql as 'select 0::bigint'"
    )
    conn.execute(ONE)
    evil = make_conninfo(dsn, options="-c search_path=evil,pg_catalog")
    with connect(evil, lease=6) as session:
        assert quick(began(session)).fence.drawn_id == 1
        assert session.execute("show search_path").fetchone() == ("pg_catalog, pg_temp",)
    conn.execute(f"alter database {conn.info.dbname} set search_path = evil, pg_catalog")
    with (
        connect(dsn, lease=6, pooler=True) as session,
        pytest.raises(PartialReadError, match="search_path puts pg_catalog"),
    ):
        proof.check_intact(session, SCHEMA)
