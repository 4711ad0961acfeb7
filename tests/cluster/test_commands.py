"""The ways `partbox worker` is called."""

from partbox.db.migrate import migrate


def test_until_empty_ends_when_everything_is_delivered(cluster):
    cluster.ledger.publish_now(cluster.ledger.names, burst=4)
    node = cluster.node("node", "--until-empty", processes=2)
    assert node.wait() == 0
    assert cluster.owners.consumed()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    assert cluster.owners.shares().keys() == {None}


def test_a_worker_that_is_not_enabled_says_so_and_delivers_nothing(cluster):
    cluster.ledger.publish_now(cluster.ledger.names[:10])
    node = cluster.node("node", enabled="false")
    assert node.wait() == 0
    assert "enabled is false: nothing is delivered; publishing works" in node.log
    assert cluster.journal.started() == set()
    assert not cluster.owners.consumed()


def test_several_databases_have_as_many_processes_each(new_cluster, dsn, empty_dsn):
    migrate(empty_dsn)
    one, two = new_cluster(dsn), new_cluster(empty_dsn)
    node = one.node("both", "--dsn", dsn, "--dsn", empty_dsn, processes=2)
    one.balanced(2)
    two.balanced(2)
    for cluster in (one, two):
        cluster.ledger.publish_now(cluster.ledger.names[:50], burst=2)
    two.journal = one.journal
    for cluster in (one, two):
        cluster.delivered()
    pids = {*one.owners.instances().values(), *two.owners.instances().values()}
    assert len(pids) == 4
    assert {delivery.pid for delivery in one.journal.deliveries()} == pids
    assert node.stop() == 0


def test_a_worker_without_its_schema_says_what_to_do(cluster):
    node = cluster.node("node", "--schema", "nowhere")
    assert node.wait() == 1
    assert "partbox init" in node.log
    assert "Traceback" not in node.log
