"""The ways `partbox worker` is called."""

from waiting import eventually

from partbox.protocol.hashing import partition_of


def test_until_empty_ends_when_everything_is_delivered(cluster):
    cluster.ledger.publish_now(cluster.ledger.names, burst=2)
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


def test_each_of_several_databases_has_the_given_number_of_processes(new_cluster, dsn, fresh_dsn):
    one, two = new_cluster(dsn), new_cluster(fresh_dsn)
    node = one.node("both", "--dsn", dsn, "--dsn", fresh_dsn, processes=2)
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


def test_one_partition_alone_can_use_the_whole_concurrency_of_its_process(cluster):
    cluster.node("node", concurrency=6)
    cluster.balanced(1)
    names = [name for name in cluster.ledger.names if partition_of(name) == partition_of(cluster.ledger.names[0])][:6]
    assert len(names) == 6
    gates = [cluster.gate(f"gate-{number}") for number in range(2)]
    first = cluster.ledger.publish_now(names, gate=str(gates[0]))
    cluster.running(first)
    others = cluster.ledger.publish_now(cluster.ledger.names[-20:], gate=str(gates[1]))
    eventually(lambda: len(cluster.journal.started()) == 6)
    gates[0].touch()
    eventually(lambda: set(first) <= cluster.journal.ended() and len(cluster.journal.started()) == 6 + len(first))
    assert not set(others) & cluster.journal.ended()
    gates[1].touch()
    cluster.delivered()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
