"""The processes of a node hear of a plan that it has made."""

import os
from collections.abc import Iterator

import pytest

from partbox.settings import load
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.worker.slot import PLAN_COUNT, Slot


@pytest.fixture
def membership(dsn) -> Iterator[Membership]:
    made = Membership(load(dsn=dsn), "default", lambda: dsn)
    made.open()
    yield made
    made.close()


def test_the_processes_of_a_node_are_notified_of_each_plan_and_of_nothing_else(membership):
    first, second = (RegisteredProcess(Slot.create_local(), os.getpid() + number) for number in range(2))
    membership.tick([first])
    assert first.slot[PLAN_COUNT] == 1
    membership.tick([first])
    assert first.slot[PLAN_COUNT] == 1
    membership.tick([first, second])
    assert (first.slot[PLAN_COUNT], second.slot[PLAN_COUNT]) == (2, 2)


def test_surviving_processes_are_notified_of_the_plan_after_a_death(membership):
    first, second = (RegisteredProcess(Slot.create_local(), os.getpid() + number) for number in range(2))
    membership.tick([first, second])
    before = first.slot[PLAN_COUNT]
    membership.bury([second], [first])
    assert first.slot[PLAN_COUNT] == before + 1
