"""What a session reads and saves belongs to one life of the server: in another it is a lost connection."""

from contextlib import nullcontext

import psycopg
import pytest
from ownership import DEFAULT, SCHEMA, join, seize
from roles import cast_of

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import cursors, idle_check, records, server_incarnation
from partbox.db.delivery.server_incarnation import UNKNOWN_INCARNATION, NewIncarnationError
from partbox.protocol.cursor import ReadRequest
from partbox.protocol.horizon import Page
from partbox.protocol.rows import CursorSave, ParkedSave

NEW = "select setval('partbox.life', 77)"
"""As another worker does in the next life, while this one's connection lasts."""
NONE = "select setval('partbox.life', 1, false)"
"""What a crash does."""
LAST = "select pg_sequence_last_value('partbox.life'::regclass)"


@pytest.fixture
def session(dsn):
    with connect(dsn, lease=6) as session:
        use_raw_loaders(session)
        server_incarnation.note_incarnation(session, server_incarnation.read_incarnation(session, SCHEMA))
        yield session


def look(conn):
    return idle_check.run_check(conn, SCHEMA, [])


def poll(conn):
    ask = ReadRequest(3, 0, 10, Page("1:1:", 0), None, None)
    return records.poll_page(conn, SCHEMA, [ask], None, lo=0, hi=1_000)


def owning(conn):
    (me,) = join(conn)
    return me, seize(conn, me, [3])[3].epoch


@pytest.mark.parametrize("ask", [look, poll])
@pytest.mark.parametrize("ended", [NEW, NONE])
def test_reading_in_another_server_incarnation_is_a_lost_connection(session, conn, ask, ended):
    ask(session)
    conn.execute(ended)
    with pytest.raises(NewIncarnationError, match="crashed or was replaced"):
        ask(session)
    assert session.closed


@pytest.mark.parametrize("ended", [NEW, NONE])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a transaction"])
def test_a_save_in_another_server_incarnation_writes_nothing_and_is_a_lost_connection(session, conn, ended, inside):
    me, epoch = owning(conn)
    saving = CursorSave(3, epoch, "5:5:", 4, 4, True)
    park = ParkedSave(3, 4, "A", "a", "T", "dead", blocks=False, attempts=1)
    conn.execute(ended)
    with session.transaction() if inside else nullcontext(), pytest.raises(NewIncarnationError):
        cursors.save(session, SCHEMA, DEFAULT, me, [saving], [park])
    assert session.closed
    found = conn.execute("select last_id, owner from partbox.partition where partition = 3")
    assert found.fetchone() == (0, me)
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)


def test_a_save_in_the_same_server_incarnation_succeeds(session, conn):
    me, epoch = owning(conn)
    mine, took = cursors.save(session, SCHEMA, DEFAULT, me, [CursorSave(3, epoch, "5:5:", 4, 4, False)])
    assert mine == {3}
    assert took >= 0
    assert cursors.save(session, SCHEMA, DEFAULT, me, [CursorSave(3, epoch + 1, "6:6:", 5, 5, False)])[0] == set()


def test_the_first_session_that_finds_no_incarnation_begins_one_and_others_share_it(dsn, conn):
    conn.execute(NONE)
    with connect(dsn, lease=6) as one, connect(dsn, lease=6) as other:
        first, second = (
            server_incarnation.read_incarnation(one, SCHEMA),
            server_incarnation.read_incarnation(other, SCHEMA),
        )
    assert first == second
    assert first.value == conn.execute(LAST).fetchone()[0]
    assert first.value > 1_700_000_000_000  # milliseconds since 1970, so that none comes twice


def test_a_worker_role_can_begin_an_incarnation_and_works_without_one_if_it_may_not(dsn, conn):
    with cast_of(dsn) as cast:
        worker = psycopg.conninfo.make_conninfo(dsn, user=cast.worker)
        conn.execute(NONE)
        with connect(worker, lease=6) as own:
            assert server_incarnation.read_incarnation(own, SCHEMA).value == conn.execute(LAST).fetchone()[0]
        conn.execute(f'revoke all on sequence partbox.life from "{cast.worker}"')
        with connect(worker, lease=6) as own:
            use_raw_loaders(own)
            assert server_incarnation.read_incarnation(own, SCHEMA) == UNKNOWN_INCARNATION
            server_incarnation.note_incarnation(own, UNKNOWN_INCARNATION)
            conn.execute(NEW)
            look(own)
            poll(own)
