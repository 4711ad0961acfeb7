"""Observing: a log that nobody reads, and one that is to name the remedy."""

from mutations.mutation import Mutation

OUTLET = "partbox/observe/logs/outlet.py"
FULL = "tests/observe/logs/test_full_pipe.py"

MUTATIONS = (
    Mutation(
        "patience-with-a-reader-that-does-not-read",
        "Each line would hold up its thread for half a second: heartbeats, saves and reads among them.",
        OUTLET,
        "            if not self._stuck:\n",
        "            if True:\n",
        (f"{FULL}::test_one_that_waited_in_vain_is_the_only_one",),
    ),
    Mutation(
        "lines-kept-without-bound",
        "A reader that never reads again would cost all the memory there is.",
        OUTLET,
        "if len(self._waiting) >= KEPT:",
        "if False:",
        (f"{FULL}::test_nobody_waits_twice_for_a_reader_that_does_not_read_and_what_is_lost_is_counted",),
    ),
    Mutation(
        "a-purge-without-the-remedy",
        "The line about a full disk would say what PostgreSQL says, and not what to do.",
        "partbox/supervisor/purging.py",
        "said: object = error\n",
        "said: object = str(error)\n",
        ("tests/supervisor/test_purger.py::test_a_purge_that_finds_no_room_on_the_servers_disk_names_the_remedy",),
    ),
)
