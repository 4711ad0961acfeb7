-- purpose: processes with few partitions sleep for longer, publishers ring for them meanwhile, and plans and commands too
-- breaking: no

-- No table changes: the functions are made anew. `ring` rings while the flag lies up to three seconds ahead, not one, and what
-- changes a plan or parked rows says so. An older program rings in the last second of these only, and what it writes before
-- waits for the rest of a nap.
