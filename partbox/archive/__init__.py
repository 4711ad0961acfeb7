"""The archive: what leaves the log is written to files before, each record once, in the order of ids.

`archived_id` in the database says up to which id everything is in a file that stays, and no purge removes what is
above, whoever purges and whatever its settings are. So nothing has to be done together with a removal:

1. Records that have expired are read by id, from `archived_id` on, up to what is settled: the ids that no
   transaction can write any more (`settle`).
2. They are written to a file under a temporary name; it is synced and renamed, or uploaded whole.
3. `archived_id` is raised to its last id.

Whoever is killed between two steps has lost nothing: the next one begins at `archived_id`, and writes some records to a
second file. No file is ever replaced by another one, for its name holds a digest of its content.
"""
