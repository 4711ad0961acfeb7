"""Lines in files: what a disk that is full leaves of them."""

from mutations.mutation import Mutation

FILE = "partbox/sinks/appending.py"
TESTS = "tests/sinks/test_appending.py"

MUTATIONS = (
    Mutation(
        "write-that-took-a-part",
        "A dead event counts as sent, and half of it is in the file.",
        FILE,
        "while rest:\n            try:\n                rest = rest[os.write(handle, rest) :]",
        "if rest:\n            try:\n                os.write(handle, rest)",
        (f"{TESTS}::test_nothing_stays_of_lines_that_did_not_fit",),
    ),
    Mutation(
        "torn-line-that-stays",
        "The line that comes next is swallowed by half of one.",
        FILE,
        "        _cut(handle, len(lines) - len(rest))\n",
        "",
        (f"{TESTS}::test_nothing_stays_of_printed_lines_that_did_not_fit",),
    ),
    Mutation(
        "torn-line-of-a-killed-process",
        "The line that comes next is swallowed by what a killed process has left.",
        FILE,
        "return size > 0 and",
        "return False and",
        (f"{TESTS}::test_a_line_that_a_killed_process_left_torn_does_not_swallow_the_next",),
    ),
)
