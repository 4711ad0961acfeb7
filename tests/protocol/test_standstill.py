"""How long a node waits for what is left under `--until-empty`."""

from dataclasses import replace

from partbox.protocol.outstanding import IDLE_PATIENCE, OutstandingWork, Standstill

RETRYING = OutstandingWork(cursor_sum="7", unfinished=1, due_in=5.0)


def test_an_event_that_is_retried_without_end_is_waited_for_as_long_as_the_patience_lasts():
    still = Standstill()
    assert not still.is_over(RETRYING, IDLE_PATIENCE, 100.0)
    assert not still.is_over(RETRYING, IDLE_PATIENCE, 100.0 + IDLE_PATIENCE - 6)
    assert still.is_over(replace(RETRYING, due_in=0.0), IDLE_PATIENCE, 100.0 + IDLE_PATIENCE)


def test_the_patience_begins_anew_with_every_event_that_is_finished():
    still = Standstill()
    for number in range(1, 10):
        now = 0.9 * IDLE_PATIENCE * number
        assert not still.is_over(replace(RETRYING, unfinished=10 - number, due_in=0.0), IDLE_PATIENCE, now)


def test_a_handler_that_runs_for_long_or_a_partition_without_an_owner_is_no_standstill():
    still, moving = Standstill(), replace(RETRYING, may_move=True, due_in=0.0)
    assert not still.is_over(moving, IDLE_PATIENCE, 0.0)
    assert not still.is_over(moving, IDLE_PATIENCE, 100 * IDLE_PATIENCE)


def test_an_event_that_is_due_after_the_patience_is_not_waited_for_at_all():
    assert Standstill().is_over(replace(RETRYING, due_in=IDLE_PATIENCE + 1), IDLE_PATIENCE, 0.0)


def test_a_scheduled_event_is_waited_for_only_if_it_is_due_soon():
    soon, later = OutstandingWork(scheduled=1, scheduled_in=1.0), OutstandingWork(scheduled=1, scheduled_in=10.0)
    assert soon.can_progress(IDLE_PATIENCE)
    assert not soon.can_progress(0.5)
    assert not later.can_progress(IDLE_PATIENCE)
    assert soon.is_done
    assert later.is_done
