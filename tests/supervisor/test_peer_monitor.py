"""The turns in which many nodes look at each other."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from partbox.db.delivery.instances import Watch
from partbox.protocol.intervals import AT_ONCE, between_beats
from partbox.settings import Settings
from partbox.supervisor.membership import RARELY, TURN, PeerMonitor, longest_turn

SETTINGS = Settings()


def calm(nodes: int) -> Watch:
    return Watch(datetime.now(UTC), (0, nodes), nodes, unassigned=False, orphaned=False, late=[])


@given(st.integers(AT_ONCE + 1, 1_000))
def test_one_of_many_nodes_looks_again_within_the_longest_turn_and_at_the_heartbeat_after_it(nodes: int) -> None:
    watching, longest = PeerMonitor(SETTINGS, "default"), longest_turn(nodes, SETTINGS)
    assert 0 < watching._pause(calm(nodes)) <= longest - between_beats(nodes, SETTINGS.heartbeat, SETTINGS.lease)
    assert longest <= longest_turn(1_000, SETTINGS) < (TURN[1] * RARELY + 1) * SETTINGS.lease


@given(st.integers(1, AT_ONCE))
def test_one_of_few_nodes_looks_every_heartbeat(nodes: int) -> None:
    assert PeerMonitor(SETTINGS, "default")._pause(calm(nodes)) == 0.0
    assert longest_turn(nodes, SETTINGS) == SETTINGS.heartbeat
