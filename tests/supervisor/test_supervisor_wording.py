"""What a node's log says of partitions, as a person would."""

import pytest

from partbox.supervisor.membership import describe_burial
from partbox.supervisor.planner import describe_plan
from partbox.text.wording import describe_exit, format_count


@pytest.mark.parametrize(
    ("moved", "members", "said"),
    [
        (256, 0, "no process is left to deliver events: 256 partitions wait for a process"),
        (256, 1, "assigned 256 partitions to the only process"),
        (1, 3, "moving 1 partition, so that 3 processes have even shares"),
    ],
)
def test_the_text_of_a_plan_says_what_moves_and_why(moved, members, said):
    assert describe_plan(moved, members) == said


@pytest.mark.parametrize(
    ("buried", "freed", "said"),
    [
        (1, 128, "1 process died and left 128 partitions, to be claimed by others"),
        (2, 1, "2 processes died and left 1 partition, to be claimed by others"),
        (0, 3, "3 partitions had no living owner, and may be claimed"),
    ],
)
def test_the_text_of_a_burial_says_which_partitions_are_left(buried, freed, said):
    assert describe_burial(buried, freed) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9, "was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-99, "was killed by signal 99"),
        (3, "ended with exit code 3"),
    ],
)
def test_an_exit_code_is_put_into_words(code, said):
    assert describe_exit(code) == said


@pytest.mark.parametrize(
    ("number", "what", "said"),
    [(1, "process", "1 process"), (2, "process", "2 processes"), (1_000, "record", "1,000 records"), (0, "a", "0 as")],
)
def test_counted_nouns_are_singular_or_plural(number, what, said):
    assert format_count(number, what) == said
