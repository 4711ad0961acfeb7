"""The archive: records are written to files before they leave the log, each record once, in the order of ids.

`archived_id` in the database is the id up to which everything is in a file that stays. No purge removes a record above
it, independent of the purge's settings. So nothing must happen together with a removal:

1. Expired records are read by id, from `archived_id` up to the settled id, below which no transaction can write any
more
   (`settle`).
2. The records are written to a file under a temporary name. The file is synced and renamed, or uploaded whole. 3.
`archived_id` is raised to the last id of the file.

A process that is killed between two steps loses nothing. The next process begins at `archived_id` and writes some
records to a second file. No file is ever replaced, because its name contains a digest of the content.
"""
