"""The dead-letter hook, in processes that die under it."""

import pytest
from clusters import FAST
from node import Node
from waiting import eventually


@pytest.mark.thorough
def test_a_dead_letter_is_given_to_the_hook_again_if_the_process_dies_before_the_hook_returns(cluster):
    folder, conn = cluster.journal.folder, cluster.owners.conn
    flags = ["--processes", "2", "--concurrency", "2"]
    node = Node("node", cluster.folder, folder, flags, FAST | {"dsn": cluster.dsn}, application="letter_app:outbox")
    cluster.nodes.append(node)
    (_, dead, _) = cluster.ledger.publish_now(cluster.ledger.names[:1], burst=3)
    eventually(lambda: len(cluster.journal.deliveries()) >= 2, interval=0.05)
    (folder / "cure").touch()
    eventually(lambda: dead in cluster.journal.ended(), interval=0.05)

    letters = "select state, attempts, last_error, due_at from partbox.parked"
    eventually(lambda: conn.execute(letters).fetchall() == [("dead", 1, "no use", None)], interval=0.05)
    calls = cluster.journal.deliveries()
    assert {call.event for call in calls} == {dead}
    assert [call.end is not None for call in calls] == [False] * (len(calls) - 1) + [True]
    assert len({call.pid for call in calls}) == len(calls)
    assert node.stop() == 0
