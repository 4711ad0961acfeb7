"""The turns in which many nodes look at each other."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from partbox.db.delivery.instances import MembershipView
from partbox.protocol.intervals import FULL_SHARE_NODES, beat_interval
from partbox.settings import Settings
from partbox.supervisor.membership import MAX_ROTATION_LEASES, ROTATION_JITTER, PeerMonitor, compute_longest_rotation

SETTINGS = Settings()


def calm(nodes: int) -> MembershipView:
    return MembershipView(
        datetime.now(UTC), (0, nodes), nodes, has_unassigned=False, has_orphaned=False, late_members=[]
    )


@given(st.integers(FULL_SHARE_NODES + 1, 1_000))
def test_each_of_many_nodes_checks_its_peers_within_the_longest_rotation(nodes: int) -> None:
    watching, longest = PeerMonitor(SETTINGS, "default"), compute_longest_rotation(nodes, SETTINGS)
    assert (
        0 < watching._compute_pause(calm(nodes)) <= longest - beat_interval(nodes, SETTINGS.heartbeat, SETTINGS.lease)
    )
    assert (
        longest
        <= compute_longest_rotation(1_000, SETTINGS)
        < (ROTATION_JITTER[1] * MAX_ROTATION_LEASES + 1) * SETTINGS.lease
    )


@given(st.integers(1, FULL_SHARE_NODES))
def test_each_of_few_nodes_checks_its_peers_at_every_heartbeat(nodes: int) -> None:
    assert PeerMonitor(SETTINGS, "default")._compute_pause(calm(nodes)) == 0.0
    assert compute_longest_rotation(nodes, SETTINGS) == SETTINGS.heartbeat
