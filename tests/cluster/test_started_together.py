"""Many processes that start together, and whose heartbeats are all held up together."""

import json
from collections import Counter

from waiting import eventually

NODES, PROCESSES = 3, 4
ALL = NODES * PROCESSES


def said(cluster):
    """Return the number of lines that the nodes have logged, by the name of the event."""
    lines = (line for node in cluster.nodes for line in node.log.splitlines() if line.startswith("{"))
    return Counter(json.loads(line).get("event") for line in lines)


def test_processes_whose_heartbeats_are_held_up_together_are_neither_buried_nor_connected_again_and_again(cluster):
    for number in range(NODES):
        cluster.node(f"node-{number}", processes=PROCESSES, lease=6, log_format="json")
    cluster.balanced(ALL)
    before, rows = cluster.owners.instances(), cluster.owners.rows()
    assert said(cluster)["partbox.worker_started"] == ALL, "none was killed while it started"

    beats = "select min(heartbeat_at) from partbox.instance"
    with cluster.owners.conn.transaction():
        cluster.owners.conn.execute("select from partbox.instance order by instance_id for update")
        # Every node waits for a row of its own, for longer than a statement of a fast server may take.
        (held_at,) = cluster.owners.conn.execute("select clock_timestamp()").fetchone()
        cluster.owners.conn.execute("select pg_sleep(3)")
    eventually(lambda: cluster.owners.conn.execute(beats).fetchone()[0] > held_at, interval=0.05)
    cluster.ledger.publish_now(cluster.ledger.names)
    cluster.delivered()

    assert cluster.owners.instances() == before
    assert {number: row.epoch for number, row in cluster.owners.rows().items()} == {
        number: row.epoch for number, row in rows.items()
    }
    logged = said(cluster)
    assert logged["partbox.connection_hung"] <= NODES, "the first wait that is too long teaches each node"
    assert not logged.keys() & {"partbox.buried", "partbox.identity_lost", "partbox.silent", "partbox.crash"}
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
