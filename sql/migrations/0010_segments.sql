-- purpose: segments of the log are made ahead of need, emptied whole and dropped, by functions of their owner
-- breaking: no

-- The functions do it all, and every migration replaces those. Programs that do not know them go on as before: they purge
-- record by record, and leave the segments that others have made alone.
comment on table {schema}.record is 'The log. partbox makes its segments ahead of need, empties them whole and drops them.';
