-- name: inbox_first_time
-- A row if the consumer sees the event for the first time. Waits for a transaction that has it and is still open.
insert into {schema}.inbox (consumer, event_id) values (%(consumer)s::text, %(event_id)s::uuid) on conflict do nothing returning true
