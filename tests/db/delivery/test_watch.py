"""A look at the members of a subscription: who is late, and whether something changed."""

import pytest
from ownership import DEFAULT, SCHEMA, assign, bury, join, seize

from partbox.db.delivery import instances
from partbox.protocol.intervals import FULL_SHARE_NODES, MAX_BEAT_OF_LEASE
from partbox.protocol.lease import SeenHeartbeat
from partbox.settings import Settings
from partbox.supervisor import membership
from partbox.supervisor.membership import PeerMonitor


def look(conn, since=None):
    return instances.read_membership(conn, SCHEMA, DEFAULT, since)


def age(conn, instance, seconds):
    beaten = "clock_timestamp() - make_interval(secs => %s)"
    conn.execute(f"update partbox.instance set heartbeat_at = {beaten} where instance_id = %s", [seconds, instance])


def test_an_instance_with_a_recent_heartbeat_is_not_late(conn):
    join(conn, 2)
    assert look(conn).late_members == []


def test_an_instance_silent_for_over_a_quarter_of_its_lease_is_late_with_the_rest_of_it_left(conn):
    quiet, slow, _ = join(conn, 3)
    age(conn, quiet, 8)  # of 20
    age(conn, slow, 20 * MAX_BEAT_OF_LEASE)  # as slow as any beats
    (late,) = look(conn).late_members
    assert late.instance_id == quiet
    assert late.lease == 20
    assert late.lease_left == pytest.approx(12, abs=2)


def test_an_instance_without_a_heartbeat_since_the_last_observation_is_late(conn):
    a, b = join(conn, 2)
    before = look(conn).clock
    instances.renew_heartbeats(conn, SCHEMA, {b: False})
    assert [each.instance_id for each in look(conn, before).late_members] == [a]


def test_the_membership_version_changes_with_a_join_drain_or_leave_and_not_with_heartbeats(conn):
    a, _ = join(conn, 2)
    shapes = [look(conn).membership_version]
    instances.renew_heartbeats(conn, SCHEMA, {a: False})
    assert look(conn).membership_version == shapes[0]
    (c,) = join(conn)
    shapes.append(look(conn).membership_version)
    instances.renew_heartbeats(conn, SCHEMA, {a: True})
    shapes.append(look(conn).membership_version)
    bury(conn, [c], known_dead=True)
    shapes.append(look(conn).membership_version)
    assert len(set(shapes)) == 4


def test_an_observation_reports_partitions_without_assignee_and_those_whose_owner_is_gone(conn):
    (a,) = join(conn)
    assert look(conn).has_unassigned
    seize(conn, a)
    assert (look(conn).has_unassigned, look(conn).has_orphaned) == (False, False)
    conn.execute("delete from partbox.instance where instance_id = %s", [a])
    assert look(conn).has_orphaned
    assign(conn, None, [7])
    assert look(conn).has_unassigned


def test_an_observation_reports_nothing_of_another_subscription(conn):
    conn.execute("insert into partbox.subscription (name) values ('other')")
    (other,) = join(conn, subscription="other")
    age(conn, other, 100)
    assert (look(conn).membership_version, look(conn).late_members) == ((0, 0), [])


@pytest.fixture
def now(monkeypatch):
    """The monotonic clock of the watch."""
    clock = [1000.0]
    monkeypatch.setattr(membership, "time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    return clock


@pytest.fixture
def watch():
    return PeerMonitor(Settings(schema=SCHEMA, heartbeat=1, lease=20), DEFAULT)


def crowd(conn, nodes):
    for number in range(nodes):
        (last,) = join(conn, node=f"n{number}")
        conn.execute("update partbox.instance set supervisor = gen_random_uuid() where instance_id = %s", [last])
    seize(conn, last)
    return last


def test_each_of_a_few_nodes_observes_at_every_heartbeat(conn, now, watch):
    crowd(conn, FULL_SHARE_NODES)
    assert watch.observe(conn) is not None
    now[0] += 0.9
    assert watch.observe(conn) is not None


def test_many_nodes_observe_in_turns_and_a_node_that_changed_something_observes_at_once(conn, now, watch):
    crowd(conn, 3 * FULL_SHARE_NODES)
    assert watch.observe(conn) is not None
    assert watch.node_count == 3 * FULL_SHARE_NODES
    now[0] += 2
    assert watch.observe(conn) is None
    watch.observe_soon()
    assert watch.observe(conn) is not None
    now[0] += 4
    assert watch.observe(conn) is not None


def test_a_node_that_has_found_a_late_peer_observes_at_every_heartbeat(conn, now, watch):
    last = crowd(conn, 3 * FULL_SHARE_NODES)
    age(conn, last, 7)
    assert watch.observe(conn) is not None
    now[0] += 1
    assert watch.observe(conn) is not None


def test_one_of_many_nodes_is_not_late_for_lack_of_a_heartbeat_since_the_last_observation(conn, now, watch):
    crowd(conn, 3 * FULL_SHARE_NODES)
    watch.observe(conn)
    watch.observe_soon()
    assert watch.observe(conn).late_members == []


def test_a_late_peer_among_many_has_been_watched_since_the_last_observation_before_it_was_late(conn, now, watch):
    last = crowd(conn, 3 * FULL_SHARE_NODES)
    age(conn, last, 4)
    watch.observe(conn)
    assert watch.late_peers == {}
    began, now[0] = now[0], now[0] + 2
    conn.execute("update partbox.instance set lease = lease / 2 where instance_id = %s", [last])  # late by now
    watch.observe_soon()
    watch.observe(conn)
    assert watch.late_peers[last].since == began


def test_a_late_peer_has_been_watched_since_it_was_found_or_since_the_observation_before(conn, now, watch):
    (a,) = join(conn)
    seize(conn, a)
    watch.observe(conn)
    assert watch.late_peers == {}
    began, now[0] = now[0], now[0] + 1
    found = watch.observe(conn)
    assert watch.late_peers == {a: SeenHeartbeat(found.late_members[0].heartbeat_at, began)}
    now[0] += 1
    watch.observe(conn)
    assert watch.late_peers[a].since == began
    age(conn, a, 6)
