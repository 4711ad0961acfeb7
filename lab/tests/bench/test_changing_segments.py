"""The segments that the bench of pauses changes."""

import psycopg

from partbox_lab.bench.changing import ChangingSegments

MILLION = 1_000_000


def write(conn: psycopg.Connection) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload) values (1, gen_random_uuid(), 'E', '{}')"
    )


def test_publishing_goes_on_in_the_next_segment_and_only_what_was_done_counts(conn):
    segments = ChangingSegments(conn, "partbox")
    assert not segments
    assert segments.ready()
    assert str(segments) == "1 made, 0 emptied, 0 dropped"
    assert segments
    assert segments.leave() == 10 * MILLION
    write(conn)
    assert segments.drawn() == 10 * MILLION
    assert segments.ready()
    segments.near_the_end(5)
    write(conn)
    assert segments.drawn() == 12 * MILLION - 5


def test_while_the_log_is_locked_nothing_counts_as_changed(conn, dsn):
    segments = ChangingSegments(conn, "partbox")
    with psycopg.connect(dsn) as other:
        other.execute("select count(*) from partbox.record")
        segments.add()
        segments.empty()
        segments.drop()
    assert not segments
