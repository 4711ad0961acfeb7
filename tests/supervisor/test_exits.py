"""The verdict of a supervisor on the exit code of a worker process."""

import pytest

from partbox.supervisor.exit_codes import FATAL, OVERDUE, UNFIT, Exit, judge_exit


def verdict(code: int, **facts: bool) -> Exit:
    return judge_exit(code, **{"drained": False, "stopping": False, "killed": False, "several": False, **facts})


def test_an_exit_code_of_0_is_fine_only_for_a_process_that_was_told_to_end():
    assert verdict(0, drained=True) is Exit.EXPECTED
    assert verdict(0) is Exit.CRASHED


@pytest.mark.parametrize("stopping", [False, True])
def test_an_unfit_database_ends_a_node_unless_it_has_several_databases(stopping):
    assert verdict(UNFIT, stopping=stopping) is Exit.CANNOT_WORK
    assert verdict(UNFIT, stopping=stopping, several=True) is Exit.DATABASE_UNFIT
    assert verdict(FATAL, stopping=stopping, several=True) is Exit.CANNOT_WORK


@pytest.mark.parametrize("code", [1, OVERDUE, -9, -11])
def test_a_death_is_a_crash_unless_the_node_is_stopping(code):
    assert verdict(code) is Exit.CRASHED
    assert verdict(code, drained=True) is Exit.CRASHED
    assert verdict(code, killed=True) is Exit.CRASHED, "a silent one that its supervisor killed is replaced"
    assert verdict(code, stopping=True) is Exit.EXPECTED
    assert verdict(code, stopping=True, killed=True) is Exit.KILLED
