"""What a tick asks of a process, from the database's rows and what it holds."""

from partbox.protocol.rows import TickPartition
from partbox.worker.engine.claims import OwnedTenure
from partbox.worker.engine.partition import Tenure
from partbox.worker.engine.phase import Phase
from partbox.worker.ownership.decision import Decision, decide_changes, find_stale

NOTHING = Decision([], [], {}, may_claim=False)


def seen(number=5, *, assigned=True, owned=True, free=False, epoch=1, version=1):
    return TickPartition(number, assigned, owned, free, epoch, version)


def held(number=5, *, epoch=1, phase=Phase.RUNNING, is_releasing=False, version=1):
    return OwnedTenure(Tenure(number, epoch), phase, is_releasing, version)


def test_a_tick_decides_nothing_when_the_database_agrees_with_what_is_held():
    assert decide_changes([seen()], [held()]) == NOTHING


def test_a_partition_that_others_own_by_now_counts_as_taken():
    for rows in ([], [seen(owned=False)]):
        assert decide_changes(rows, [held()]).lost_tenures == [Tenure(5, 1)]


def test_a_partition_under_another_epoch_counts_as_taken_and_is_taken_up_again():
    decision = decide_changes([seen(epoch=2)], [held()])
    assert (decision.lost_tenures, decision.unknown_partitions, decision.surplus_partitions) == (
        [Tenure(5, 1)],
        {5: 2},
        [],
    )


def test_a_partition_whose_release_is_under_way_does_not_count_as_taken():
    assert decide_changes([], [held(phase=Phase.DRAINING, is_releasing=True)]) == NOTHING


def test_a_partition_assigned_to_others_is_drained_unless_it_is_lost():
    rows = [seen(assigned=False)]
    assert decide_changes(rows, [held()]).surplus_partitions == [5]
    assert decide_changes(rows, [held(phase=Phase.LOST)]).surplus_partitions == []
    assert decide_changes([seen(assigned=False, epoch=2)], [held()]).surplus_partitions == []


def test_an_owned_partition_that_is_not_held_or_was_lost_by_mistake_is_taken_up():
    assert decide_changes([seen()], []).unknown_partitions == {5: 1}
    assert decide_changes([seen()], [held(phase=Phase.LOST)]).unknown_partitions == {5: 1}


def test_only_an_assigned_and_free_partition_is_claimed():
    assert decide_changes([seen(owned=False, free=True)], []).may_claim
    assert not decide_changes([seen(owned=False)], []).may_claim
    assert not decide_changes([seen(assigned=False, owned=False, free=True)], []).may_claim


def test_parked_rows_are_read_again_where_a_command_has_changed_them_and_they_may_run():
    rows = [seen(version=2)]
    assert find_stale(rows, [held()]) == {5: 2}
    assert find_stale(rows, [held(phase=Phase.LOADING, version=-1)]) == {5: 2}
    for unchanged in (held(version=2), held(phase=Phase.DRAINING), held(phase=Phase.LOST)):
        assert find_stale(rows, [unchanged]) == {}
    assert find_stale([seen(owned=False, version=2)], [held()]) == {}
