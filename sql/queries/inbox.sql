-- name: inbox_first_time
-- The statement returns a row if the consumer sees the event for the first time. It waits for an open transaction that has inserted the
-- same row.
insert into {schema}.inbox (consumer, event_id) values (%(consumer)s::text, %(event_id)s::uuid) on conflict do nothing returning true

-- name: inbox_seen
-- If no row was returned, this statement inserts again, and the plan says whether a row with the same key was in the way. A trigger that
-- keeps the row out raises no error either, and consumers may not read the table.
explain (analyze, costs off, timing off, summary off) {inbox_first_time}
