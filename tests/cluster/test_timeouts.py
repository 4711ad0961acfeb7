"""Handlers over their time: cancelled where they can be, and where they cannot be, ended with their process."""

import pytest
from waiting import eventually
from ward import Ward

OVERDUE = "TimeoutError: the handler ran longer than its timeout of 1 s"


@pytest.fixture
def ward(cluster):
    return Ward(cluster)


def pids(ward):
    return set(ward.cluster.owners.instances("node").values())


@pytest.mark.thorough
@pytest.mark.parametrize("event_type", ["Hang", pytest.param("HangInPool", marks=pytest.mark.soak), "AsyncBlock"])
def test_a_handler_that_cannot_be_cancelled_ends_its_process_and_everything_else_flows(ward, event_type):
    """The lease is so long that what is delivered in time was released, or freed because the death is known."""
    ward.node(processes=2, lease=60, handler_timeout=1, max_attempts=1)
    ward.cluster.balanced(2)
    before = pids(ward)
    stuck = ward.publish_poison(event_type, ward.names[0])
    ward.publish(2)
    ward.settled(30)
    ward.cluster.balanced(2)

    assert ward.dead() == {stuck: (1, OVERDUE)}
    assert ward.wrong() == {}
    (pid,) = {one.pid for one in ward.deliveries(stuck)}
    assert before - pids(ward) == {pid}
    log = ward.cluster.nodes[0].log
    assert f"on_error: {event_type} TimeoutError 1" in log
    assert f"process {pid} ended with exit code 4" in log


@pytest.mark.thorough
def test_an_async_handler_is_cancelled_and_tried_again_and_its_process_stays(ward):
    ward.node(processes=1, handler_timeout=1, max_attempts=2)
    ward.cluster.balanced(1)
    before = pids(ward)
    slow = ward.publish_poison("AsyncHang", ward.names[0])
    ward.publish(2)
    ward.settled()

    assert ward.dead() == {slow: (2, OVERDUE)}
    assert [one.attempt for one in ward.deliveries(slow)] == [1, 2]
    assert ward.wrong() == {}
    assert pids(ward) == before
    assert "on_error: AsyncHang TimeoutError 2" in ward.cluster.nodes[0].log


def test_a_handler_that_holds_the_interpreter_is_killed_with_its_process(ward):
    node = ward.node(processes=2, handler_timeout=1, drain_timeout=1, max_attempts=2)
    ward.cluster.balanced(2)
    held = ward.publish_poison("Hold", ward.names[0])
    ward.publish(2)
    ward.settled()

    assert ward.dead() == {held: (2, "the process died 2 times handling the event")}
    assert ward.wrong() == {}
    assert node.log.count("shows no life for") == len(ward.deliveries(held))
    eventually(lambda: len(pids(ward)) == 2)
    ward.cluster.balanced(2)
