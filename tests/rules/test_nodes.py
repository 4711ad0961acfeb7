"""Names of nodes."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from partbox.rules.nodes import Process, names

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))

processes = st.builds(
    Process,
    node=st.sampled_from(["web-1", "web-2"]),
    supervisor=st.none() | st.integers(1, 4).map(lambda number: UUID(int=number)),
    age=st.floats(0, 1e6),
)


def test_nodes_of_one_name_are_numbered_in_the_order_of_their_earliest_start():
    found = [
        Process("web-1", TWO, 50.0),
        Process("web-1", ONE, 10.0),
        Process("web-2", THREE, 99.0),
        Process("web-1", ONE, 60.0),  # its node was there first; the other process of it was replaced
        Process("web-1", None, 5.0),
    ]
    assert names(found) == ["web-1 (2)", "web-1", "web-2", "web-1", "web-1 (3)"]
    assert names([]) == []


@given(st.lists(processes, max_size=12), st.randoms())
def test_processes_have_one_name_when_they_are_of_one_node_in_whatever_order_they_come(found, chance):
    told = names(found)
    for one, name in zip(found, told, strict=True):
        for other, its in zip(found, told, strict=True):
            assert (name == its) == (one[:2] == other[:2])
        assert name.startswith(one.node)
    order = list(range(len(found)))
    chance.shuffle(order)
    assert names([found[place] for place in order]) == [told[place] for place in order]
