"""The archive: the terms that keep a record from leaving the log while it is in no file."""

from mutations.mutation import Mutation

HOLDS = "sql/functions/segment_holds.sql"
RECORDS = "sql/functions/purge_records.sql"
ARCHIVER = "partbox/archive/archiver.py"
DIRECTORY = "partbox/archive/location.py"
STEPS = "partbox/db/operator/archive.py"
FIRST = "tests/db/archive/test_archived_first.py"
COMMANDS = "tests/cli/test_archive_commands.py"
OTHERS = f"{FIRST}::test_a_purge_without_the_archive_setting_removes_no_record_that_is_not_archived"
LATE = f"{FIRST}::test_archiving_waits_for_an_open_transaction_that_has_drawn_a_lower_id"

MUTATIONS = (
    Mutation(
        "segment-that-is-in-no-file",
        "A segment is emptied only when its newest record is archived.",
        HOLDS,
        "if newest > kept then",
        "if newest > kept + 1000 then",
        (OTHERS,),
    ),
    Mutation(
        "record-that-is-in-no-file",
        "Row by row nothing goes that is not archived.",
        RECORDS,
        "bound := least(bounds[part + 1], spared - 1, kept);",
        "bound := least(bounds[part + 1], spared - 1);",
        (f"{FIRST}::test_purges_go_on_without_an_archive_once_archiving_has_been_ended",),
    ),
    Mutation(
        "archive-before-it-is-settled",
        "A transaction that is open may still write an id below.",
        STEPS,
        "return self.fence.drawn if self.oldest_open_xid > self.fence.xid else self.fence.settled",
        "return self.fence.drawn",
        (LATE,),
    ),
    Mutation(
        "archive-noted-before-it-is-there",
        "What is noted may go, so the file comes first.",
        ARCHIVER,
        "            kept = part.finish_file()\n        steps.note_done(self.conn, self.settings.schema_name, after)\n",
        "            steps.note_done(self.conn, self.settings.schema_name, after)\n            kept = "
        "part.finish_file()\n",
        (f"{FIRST}::test_records_stay_in_the_log_while_the_archive_is_full_and_archiving_is_tried_again",),
    ),
    Mutation(
        "archive-that-was-never-written",
        "A misspelt place would keep every purge from deleting.",
        ARCHIVER,
        "            location_of(place).check_writable()\n",
        "            pass\n",
        (f"{COMMANDS}::test_an_archive_that_cannot_be_written_purges_nothing_and_does_not_bind_later_purges",),
    ),
    Mutation(
        "purge-beside-an-archive-that-cannot-be-kept",
        "Where an archive is wanted and cannot be written, records would go without it.",
        "partbox/operations/purge.py",
        "    return is_kept(conn, settings)\n",
        "    return True\n",
        (f"{COMMANDS}::test_an_archive_that_cannot_be_written_purges_nothing_and_does_not_bind_later_purges",),
    ),
    Mutation(
        "archive-that-is-not-synced",
        "A file that the disk does not have yet is lost by a crash.",
        DIRECTORY,
        "            os.fsync(file.fileno())\n",
        "",
        (f"{FIRST}::test_every_file_is_synced_before_its_name_and_then_the_name",),
    ),
    Mutation(
        "archive-whose-name-is-not-synced",
        "A name that the disk does not have yet is lost by a crash.",
        DIRECTORY,
        "            self._sync_directory()\n",
        "",
        (f"{FIRST}::test_every_file_is_synced_before_its_name_and_then_the_name",),
    ),
)
