"""Lines in files: what a disk that is full leaves of them."""

from mutations.mutation import Mutation

FILE = "partbox/sinks/appending.py"
TESTS = "tests/sinks/test_appending.py"

MUTATIONS = (
    Mutation(
        "write-that-took-a-part",
        "A dead event counts as sent, and half of it is in the file.",
        FILE,
        "while remaining:\n            try:\n                remaining = remaining[os.write(handle, remaining) :]",
        "if remaining:\n            try:\n                os.write(handle, remaining)",
        (f"{TESTS}::test_lines_that_did_not_fit_into_a_file_leave_nothing_behind",),
    ),
    Mutation(
        "torn-line-that-stays",
        "The line that comes next is swallowed by half of one.",
        FILE,
        "        _truncate_written(handle, len(lines) - len(remaining))\n",
        "",
        (f"{TESTS}::test_printed_lines_that_did_not_fit_leave_nothing_behind",),
    ),
    Mutation(
        "torn-line-of-a-killed-process",
        "The line that comes next is swallowed by what a killed process has left.",
        FILE,
        "return size > 0 and",
        "return False and",
        (f"{TESTS}::test_an_incomplete_line_of_a_killed_process_does_not_swallow_the_next_line",),
    ),
)
