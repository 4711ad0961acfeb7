"""The archive: records are written to files, in the order of ids, before they leave the log.

`archived_id` in the database is the id up to which everything is in a file that stays. No purge removes a record above
it. Expired records are read from `archived_id` up to the settled id, below which no transaction can write any more
(`settle`). `archived_id` is raised only after a file with them was synced and renamed, or uploaded whole, so a process
that is killed loses nothing. The next process begins at `archived_id` and writes some records to a second file. No file
is ever replaced, because its name contains a digest of the content."""
