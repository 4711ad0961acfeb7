"""`partbox segments`, and what `partbox purge --dry-run` says of those that stay."""

import json

import pytest

RECORDS = """
insert into partbox.record (id, partition, event_id, event_type, payload, created_at)
select g, 5, gen_random_uuid(), 'Placed', '{}', now() - interval '9 days' from generate_series(1, 3) g
"""


@pytest.fixture
def passed(conn) -> None:
    """A full segment that a subscription has not passed, with a parked record."""
    conn.execute(RECORDS)
    conn.execute("select setval('partbox.record_id_seq', 10000000)")
    conn.execute("update partbox.partition set last_id = 3, floor_id = 3")
    conn.execute("update partbox.partition set floor_id = 2 where partition = 9")
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " values ('default', 2, 5, 'A', 'Placed', 'held', true)"
    )


def test_segments_lists_every_segment_with_the_reasons_that_keep_it(partbox, dsn, passed):
    out = partbox("segments", "--dsn", dsn).out
    assert "record_1" in out
    assert "10,000,000" in out
    told = json.loads(partbox("segments", "--json", "--dsn", dsn).out)
    first, *_, net = told
    assert (first["name"], first["lower"], first["upper"], first["goes"]) == ("record_1", 0, 10_000_000, False)
    assert [(hold["reason"], hold["partition"], hold["id"]) for hold in first["holds"]] == [
        ("cursor", 9, 2),
        ("parked", 5, 2),
    ]
    assert (net["name"], net["oldest"], net["holds"]) == ("record_default", None, [])


def test_a_purge_dry_run_says_what_holds_each_segment_back(partbox, dsn, conn, passed):
    out = partbox("purge", "--dry-run", "--dsn", dsn).out
    assert "nothing has expired" not in out.splitlines()[1]
    assert (
        "held back in record_1: subscription 'default' has not consumed it yet: partition 9 is at id 2; "
        "subscription 'default' has parked 1 record of it, the first with id 2 in partition 5"
    ) in out
    conn.execute("delete from partbox.parked; update partbox.partition set floor_id = 3")
    assert "would purge 1 segment of " in partbox("purge", "--dry-run", "--dsn", dsn).out
    assert conn.execute("select count(*) from partbox.record").fetchone() == (3,)
    assert "purged 1 segment of " in partbox("purge", "--dsn", dsn).out
    assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)


def test_a_schema_without_a_log_is_refused(partbox, empty_dsn):
    partbox("init", "--inbox-only", "--dsn", empty_dsn)
    assert "holds nothing but an inbox" in partbox("segments", "--dsn", empty_dsn).error
