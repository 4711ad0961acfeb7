-- purpose: while an archive is kept, no purge removes what is not in it, whoever purges
-- breaking: no

-- The functions that remove records ask `archived_id` in meta, and every migration replaces those: so programs that know
-- nothing of an archive obey it too. Without the row, or with null, there is none.
comment on table {schema}.meta is 'What partbox knows of this schema: its version, the marker, how far purge and archive went.';
