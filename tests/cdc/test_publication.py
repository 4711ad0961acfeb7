"""What PostgreSQL's own decoder gives of the log to whoever reads the publication, without Debezium."""

import psycopg
import pytest

from partbox import Outbox
from partbox.db.operator import cdc

DECODED = """
select data from pg_logical_slot_get_binary_changes('cdc', null, null, 'proto_version', '1', 'publication_names', 'cdc')
"""


@pytest.fixture
def conn(own_server):
    """To an outbox that is prepared for a connector `cdc`, which has a slot."""
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute(cdc.setup_script("partbox", role="debezium", publication="cdc").encode())
        conn.execute("select pg_create_logical_replication_slot('cdc', 'pgoutput')")
        yield conn


def decoded(conn) -> list[bytes]:
    """Messages of pgoutput since the last call that insert into the log; there is none that does anything else."""
    messages = [data for (data,) in conn.execute(DECODED)]
    inserts = [message for message in messages if message[:1] == b"I"]
    assert {message[:1] for message in messages} <= {b"B", b"C", b"R", b"I"}
    ((log,),) = conn.execute("select 'partbox.record'::regclass::oid::int").fetchall()
    assert {int.from_bytes(message[1:5]) for message in inserts} <= {log}
    return inserts


def test_an_event_is_published_as_an_insert_into_the_log_whatever_segment_it_is_in(conn, own_server):
    outbox = Outbox(own_server.dsn)
    with conn.transaction():
        outbox.publish(conn, "Placed", {"n": 1}, aggregate_id="7")
    conn.execute("select setval('partbox.record_id_seq', 10000000)")  # the first id beyond the first segment
    with conn.transaction():
        outbox.publish(conn, "Placed", {"n": 2}, aggregate_id="7")
    segments = conn.execute("select distinct tableoid::regclass::text from partbox.record").fetchall()
    first, second = decoded(conn)
    assert len(segments) == 2
    assert b'{"n":1}' in first
    assert b'{"n":2}' in second


def test_a_segment_made_ahead_is_published_and_the_removal_of_an_emptied_one_is_not(conn, own_server):
    """Its dead records are set aside and put back: to a connector they are no new events."""
    outbox = Outbox(own_server.dsn)
    outbox.subscriptions.create("audit")
    assert not outbox.purge().segments
    conn.execute("select setval('partbox.record_id_seq', 9999997)")
    for n in range(4):
        with conn.transaction():
            outbox.publish(conn, "Placed", {"n": n}, aggregate_id="7")
    assert len(decoded(conn)) == 4
    conn.execute("update partbox.partition set last_id = 20000000, floor_id = 20000000")
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " select 'audit', id, partition, 'A', 'Placed', 'dead', false from partbox.record where id = 9999998"
    )
    assert Outbox(own_server.dsn, retain_done=0.001).purge().segments == 1
    kept = conn.execute("select tableoid::regclass::text, id from partbox.record order by id").fetchall()
    assert kept[0] == ("partbox.record_1", 9999998)
    assert decoded(conn) == []
    with conn.transaction():
        outbox.publish(conn, "Placed", {"n": 5}, aggregate_id="7")
    assert len(decoded(conn)) == 1


def test_a_connector_sees_nothing_of_a_rollback_a_purge_or_a_worker(conn, own_server):
    outbox = Outbox(own_server.dsn)
    with conn.transaction(force_rollback=True):
        outbox.publish(conn, "Placed", 1, aggregate_id="7")
    with conn.transaction():
        outbox.publish(conn, "Placed", 2, aggregate_id="7")
    assert len(decoded(conn)) == 1
    assert Outbox(own_server.dsn, retain_done=0.001).purge().records == 1
    conn.execute("insert into partbox.inbox (consumer, event_id) values ('x', gen_random_uuid())")
    assert decoded(conn) == []


def test_the_server_is_prepared_as_soon_as_the_sql_has_run(conn):
    assert cdc.load_readiness(conn, "partbox", "cdc") == ("logical", True, True)
    assert cdc.load_readiness(conn, "partbox", "other") == ("logical", False, False)
    conn.execute("alter publication cdc set (publish_via_partition_root = false)")
    assert cdc.load_readiness(conn, "partbox", "cdc") == ("logical", True, False)
    conn.execute("alter publication cdc set (publish_via_partition_root = true, publish = 'delete')")
    assert cdc.load_readiness(conn, "partbox", "cdc") == ("logical", True, False)
