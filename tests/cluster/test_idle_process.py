"""A process that cannot connect again, beside a supervisor that is connected: its partitions go to others."""

import psycopg
import pytest
from clusters import FAST
from hanging_proxy import hanging_proxy
from node import PATIENCE, Node
from waiting import eventually

from partbox import Outbox
from partbox.protocol.hashing import partition_of

LEASE = 1.5


@pytest.fixture
def proxy(dsn):
    with hanging_proxy(dsn) as proxy:
        yield proxy


def cut_off(proxy) -> None:
    """Workers behind the proxy lose their connections, and get no others; who has none of these names goes on."""
    proxy.hang("partbox saver", later=True)
    proxy.hang("partbox poller", later=True)


def beats(cluster, node: str) -> float:
    """The time of the latest heartbeat of the node's processes."""
    row = cluster.owners.conn.execute(
        "select extract(epoch from max(heartbeat_at))::float8 from partbox.instance where node = %s", [node]
    ).fetchone()
    return row[0] or 0.0


def test_an_idle_process_is_killed_after_its_handler_and_its_successor_owns_nothing_until_it_can_read(cluster, proxy):
    cut = cluster.node("cut", concurrency=1, lease=LEASE, dsn=proxy.dsn)
    cluster.node("other", lease=LEASE)
    cluster.balanced(2)
    ((old, pid),) = cluster.owners.instances("cut").items()
    owned = {number for number, row in cluster.owners.rows().items() if row.owner == old}
    names = [name for name in cluster.ledger.names if partition_of(name) in owned]
    gate = cluster.gate()
    with psycopg.connect(cluster.dsn) as conn:  # one page
        gated = cluster.ledger.publish(conn, names[:1], gate=str(gate))
        cluster.ledger.publish(conn, names[1:], seconds=0.01)
    cluster.running(gated)

    cut_off(proxy)
    since = beats(cluster, "cut")
    eventually(lambda: beats(cluster, "cut") > since + 6 * LEASE, PATIENCE, 0.05)
    assert cluster.owners.instances("cut") == {old: pid}, "nobody kills a handler that runs within its time"
    opened_at = cluster.clock()
    gate.touch()
    eventually(lambda: cluster.owners.even(1) and old not in cluster.owners.instances(), PATIENCE, 0.05)
    cluster.delivered()
    mine = cluster.journal.deliveries(lambda one: one.pid == pid)
    assert [one for one in mine if one.start > opened_at] == [], "it starts nothing that it cannot save"
    assert {repeat.event for repeat in cluster.verdict().repeats} <= {one.event for one in mine}
    assert cluster.owners.instances("cut") == {}, "what cannot connect owns nothing"
    eventually(lambda: "neither read nor saved" in cut.log)  # not yet, where a slow machine has lost heartbeats first

    proxy.go_on()
    cluster.balanced(2)
    assert cut.stop() == 0


def test_an_embedded_worker_that_cannot_connect_lets_its_lease_end_and_joins_again_later(cluster, proxy, caplog):
    outbox = Outbox(proxy.dsn, lease=LEASE, heartbeat=0.3)
    outbox.register(lambda event: None, "Step")
    other = Outbox(cluster.dsn, lease=LEASE, heartbeat=0.3)
    other.register(lambda event: None, "Step")
    with outbox.worker(), other.worker():
        cluster.balanced(2)
        cut_off(proxy)
        # Again and again, where a slow machine has lost heartbeats first.
        eventually(lambda: "partbox.not_vouched" in {getattr(record, "event", "") for record in caplog.records})
        eventually(lambda: cluster.owners.even(1) and len(cluster.owners.instances()) == 1, PATIENCE, 0.05)
        cluster.ledger.publish_now(cluster.ledger.names)
        eventually(cluster.owners.consumed, PATIENCE)
        proxy.go_on()
        cluster.balanced(2)
    assert "partbox.not_vouched" in {getattr(record, "event", "") for record in caplog.records}


def test_a_process_whose_runners_all_hang_outside_of_a_handler_is_killed_after_two_leases(cluster):
    """Fault kind: nobody stands behind a call that does not return. An observer has no time of its own."""
    folder = cluster.journal.folder
    flags = ["--processes", "1", "--concurrency", "2"]
    given = FAST | {"dsn": cluster.dsn, "lease": LEASE}
    node = Node("node", cluster.folder, folder, flags, given, application="stuck_app:outbox")
    cluster.nodes.append(node)
    cluster.balanced(1)
    cluster.ledger.publish_now(cluster.ledger.names)
    (before,) = cluster.owners.instances("node").values()
    eventually(lambda: len([*folder.glob(f"hangs-{before}-*")]) == 2, PATIENCE, 0.05)
    (folder / "cure").touch()
    cluster.ledger.publish_now(cluster.ledger.names)  # the runners may have taken all others before they hung
    eventually(lambda: before not in cluster.owners.instances("node").values(), PATIENCE, 0.05)
    cluster.delivered()
    assert "has started no handler for" in node.log
    assert node.stop() == 0
