"""Rows of `progress_note`: what a save notes beside its cursor, and what a burial notes of who died."""

from ownership import bury, join, save, saving, seize
from savings import parking

from partbox.protocol.rows import ProgressNote

NOTES = """select last_id, snapshot::text, read_id, instance, read_at, at, epoch from partbox.progress_note
 where partition = 0 order by at"""


def notes(conn):
    return conn.execute(NOTES).fetchall()


def process(conn, me):
    return conn.execute("select pid || ' on ' || node from partbox.instance where instance_id = %s", [me]).fetchone()[0]


def saved_ago(conn, seconds):
    conn.execute(
        "update partbox.partition set saved_at = now() - make_interval(secs => %s),"
        " claimed_at = now() - interval '1 day'",
        [seconds],
    )


def test_a_note_has_the_cursor_of_its_save_and_how_far_was_read_at_the_save_before(conn, me, mine):
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)])
    (before,) = conn.execute("select saved_at from partbox.partition where partition = 0").fetchone()
    save(conn, me, [saving(mine[0], "7:9:8", 40, 30), saving(mine[1], "7:9:8", 50, 30)], parks=[ProgressNote(0, 44)])
    ((last_id, snapshot, read_id, instance, read_at, at, epoch),) = notes(conn)
    assert (last_id, snapshot, read_id, instance, epoch) == (40, "7:9:8", 44, process(conn, me), mine[0].epoch)
    assert read_at == before < at
    assert conn.execute("select count(*) from partbox.progress_note").fetchone() == (1,)


def test_a_charge_between_two_saves_does_not_count_as_the_earlier_save(conn, me, mine):
    """Records that were read after the save was gathered may be done before the charge."""
    charge = parking(0, 7, "ready", attempts=1, is_new=False, is_charge=True)
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)], parks=[parking(0, 7, "ready")])
    (before,) = conn.execute("select saved_at from partbox.partition where partition = 0").fetchone()
    save(conn, me, [saving(mine[0], None, None, None)], parks=[charge])
    save(conn, me, [saving(mine[0], "7:7:", 40, 30)], parks=[ProgressNote(0, 44)])
    ((*_, read_at, _, _),) = notes(conn)
    assert read_at == before


def test_the_first_note_of_an_owner_has_the_time_of_its_claim_as_its_read_time(conn, me, mine):
    conn.execute("update partbox.partition set saved_at = now() - interval '1 day'")
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)], parks=[ProgressNote(0, 12)])
    ((*_, read_at, _, _),) = notes(conn)
    assert (read_at,) == conn.execute("select claimed_at from partbox.partition where partition = 0").fetchone()


def test_a_cursor_saved_long_before_gets_a_note_with_its_own_time(conn, me, mine):
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)])
    saved_ago(conn, 3_600)
    (before,) = conn.execute("select saved_at from partbox.partition where partition = 0").fetchone()
    save(conn, me, [saving(mine[0], "7:7:", 40, 30)], parks=[ProgressNote(0, 44)])
    old, new = notes(conn)
    assert (old[0], old[1], old[2], old[4], old[5]) == (10, "5:5:", None, None, before)
    assert new[0] == 40


def test_a_cursor_saved_a_moment_before_gets_no_note_of_its_own(conn, me, mine):
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)])
    saved_ago(conn, 50)
    save(conn, me, [saving(mine[0], "7:7:", 40, 30)], parks=[ProgressNote(0, 44)])
    assert [row[0] for row in notes(conn)] == [40]


def test_a_save_that_is_refused_notes_nothing(conn, me, mine):
    (other,) = join(conn)
    assert save(conn, other, [saving(mine[0], "7:7:", 40, 30)], parks=[ProgressNote(0, 44), parking(0, 7)]) == set()
    assert notes(conn) == []


def test_a_bury_notes_the_last_save_of_a_dead_owner_and_nothing_for_one_that_never_saved(conn, me, mine):
    name = process(conn, me)
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)])
    bury(conn, [me], known_dead=True)
    ((last_id, snapshot, read_id, instance, *_),) = notes(conn)
    assert (last_id, snapshot, read_id, instance) == (10, "5:5:", None, name)
    (other,) = join(conn)
    seize(conn, other, [0])
    bury(conn, [other], known_dead=True)
    assert len(notes(conn)) == 1, "it had saved nothing"


def test_notes_are_removed_when_their_subscription_is_dropped(conn, me, mine):
    save(conn, me, [saving(mine[0], "5:5:", 10, 10)], parks=[ProgressNote(0, 44), parking(0, 7)])
    save(conn, me, [saving(mine[0])], done_ids=[7])
    bury(conn, [me], known_dead=True)
    conn.execute("update partbox.subscription set paused_at = now()")
    conn.execute("select partbox.subscription_drop('default')")
    left = "select (select count(*) from partbox.progress_note), (select count(*) from partbox.attempt)"
    assert conn.execute(left).fetchone() == (0, 0)
