"""Nodes of one name are told apart, and keep their names."""

from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from partbox.text.wording import find_node_names


@dataclass(frozen=True)
class Process:
    instance_id: UUID
    node: str
    supervisor: UUID | None


ids = st.uuids()
processes = st.lists(
    st.builds(Process, ids, st.sampled_from(["web-1", "web-2"]), st.sampled_from([None, UUID(int=1), UUID(int=2)])),
    unique_by=lambda each: each.instance_id,
)


def a_process(number: int, supervisor: UUID | None, node: str = "web-1") -> Process:
    return Process(UUID(int=number), node, supervisor)


def names(*processes: Process) -> list[str]:
    found = find_node_names(processes)
    return [found[each.instance_id] for each in processes]


def test_supervisors_of_one_host_are_numbered_in_the_order_of_their_starts():
    first, second, third = (UUID(int=number << 80) for number in (1, 2, 3))
    later = [a_process(1, third), a_process(2, second), a_process(3, first), a_process(4, second)]
    assert names(*later) == ["web-1 (3)", "web-1 (2)", "web-1", "web-1 (2)"]
    assert names(a_process(5, second), a_process(6, first, "web-2")) == ["web-1", "web-2"]


def test_processes_without_a_supervisor_id_are_one_node_as_before():
    assert names(a_process(1, None), a_process(2, None)) == ["web-1", "web-1"]
    assert names(a_process(1, None), a_process(2, UUID(int=1))) == ["web-1", "web-1 (2)"]


@given(processes)
def test_two_processes_have_the_same_name_just_if_name_and_supervisor_are_the_same(found):
    said = find_node_names(found)
    assert said.keys() == {each.instance_id for each in found}
    for each in found:
        for other in found:
            same = (each.node, each.supervisor) == (other.node, other.supervisor)
            assert (said[each.instance_id] == said[other.instance_id]) == same


@given(processes, st.randoms())
def test_a_name_does_not_depend_on_which_of_its_processes_live_or_on_their_order(found, random):
    kept = {(each.node, each.supervisor): each for each in found}
    fewer = list(kept.values())
    random.shuffle(fewer)
    assert find_node_names(fewer).items() <= find_node_names(found).items()
