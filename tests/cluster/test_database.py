"""A database that is slow to forget, that crashes, and that cuts connections."""

import contextlib

import psycopg
import pytest
from ledger import publishing
from waiting import eventually

from partbox_lab.chaos.oracle import judge


@pytest.mark.thorough
@pytest.mark.parametrize("count", [300, pytest.param(3_000, marks=pytest.mark.soak)])
def test_a_write_transaction_held_open_elsewhere_changes_nothing_in_delivery(cluster, count):
    cluster.node("node", processes=2)
    cluster.balanced(2)
    with psycopg.connect(cluster.dsn) as elsewhere:
        elsewhere.execute("create table elsewhere as select pg_current_xact_id()")
        with publishing(cluster.ledger, count=count):
            pass
        cluster.delivered()
        assert elsewhere.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        elsewhere.rollback()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


@pytest.mark.every_version("the server crashes")
@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_after_a_crash_of_the_database_no_event_that_exists_is_missed(new_cluster, own_server, count):
    """The publishers do not wait for the disc, so the crash takes back commits, with their ids and transaction ids."""
    cluster = new_cluster(own_server.dsn)
    cluster.node("node", processes=2)
    cluster.balanced(2)
    processes = set(cluster.owners.instances().values())
    for _ in range(2):
        reached = len(cluster.journal.ended())
        with contextlib.suppress(AssertionError), publishing(cluster.ledger, durable=False):
            eventually(lambda reached=reached: len(cluster.journal.ended()) > reached + count, interval=0.02)
            own_server.server.kill()
        own_server.server.start()
    with publishing(cluster.ledger, count=100):
        pass
    cluster.reconnect()
    cluster.delivered()
    cluster.balanced(2)

    assert set(cluster.owners.instances().values()) == processes, "the workers went on by themselves"
    published = cluster.ledger.published()
    existing = {one.event for one in published}
    verdict = judge(published, cluster.journal.deliveries(lambda one: one.event in existing))
    verdict.backwards.clear()  # progress may be taken back too: an owner repeats a suffix then
    assert verdict.wrong() == {}


@pytest.mark.thorough
@pytest.mark.parametrize("cuts", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_connections_that_are_cut_again_and_again_lose_and_repeat_nothing(cluster, cuts):
    node = cluster.node("node", processes=2)
    cluster.balanced(2)
    processes = cluster.owners.instances()
    with publishing(cluster.ledger, seconds=0.0005):
        for _ in range(cuts):
            reached = len(cluster.journal.ended())
            eventually(lambda: cluster.cut("partbox%") >= 3, interval=0.05)
            eventually(lambda reached=reached: len(cluster.journal.ended()) > reached + 40, interval=0.02)
    cluster.delivered()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    assert cluster.owners.instances() == processes
    assert node.stop() == 0
