-- name: inbox_first_time
-- A row if the consumer sees the event for the first time. Waits for a transaction that has it and is still open.
insert into {schema}.inbox (consumer, event_id) values (%(consumer)s::text, %(event_id)s::uuid) on conflict do nothing returning true

-- name: inbox_seen
-- Where no row came: the same again, and PostgreSQL tells whether a row with this key was in the way. A trigger that keeps the
-- row out raises nothing either, and consumers may read nothing of the table.
explain (analyze, costs off, timing off, summary off) {inbox_first_time}
