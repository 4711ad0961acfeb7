-- name: publish
-- one event; xid and id come from their defaults, so that the transaction id is always drawn first
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
values (%(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
        %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
        %(content_type)s::text, %(headers)s::json,
        coalesce(%(available_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(deliver_after)s::float8)),
        coalesce(%(occurred_at)s::timestamptz, clock_timestamp()))

-- name: publish_ringing
-- the same, which rings; whether anybody sleeps
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
values (%(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
        %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
        %(content_type)s::text, %(headers)s::json,
        coalesce(%(available_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(deliver_after)s::float8)),
        coalesce(%(occurred_at)s::timestamptz, clock_timestamp()))
returning {rings}

-- name: publish_once
-- one event with an idempotency key; answers one row if it was published, none if the key was used before. Waits for a
-- transaction that holds the key. Publishers may read no column of the log, so what it answers is a constant
with taken as (
    insert into {schema}.idempotency (key, event_id) values (%(idempotency_key)s::text, %(event_id)s::uuid)
    on conflict do nothing returning key
)
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
select %(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
       %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
       %(content_type)s::text, %(headers)s::json,
       coalesce(%(available_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(deliver_after)s::float8)),
       coalesce(%(occurred_at)s::timestamptz, clock_timestamp())
  from taken
returning true, {rings}

-- name: take_keys
-- takes the idempotency keys of several events; the places (in the list of events) of those that were unused. Sorted
-- the same way everywhere, so that two publishers of the same keys wait for each other once, and never in a circle
with given as (
    select key, event_id, place
      from unnest(%(keys)s::text[], %(event_ids)s::uuid[], %(places)s::integer[]) as given (key, event_id, place)
), taken as (
    insert into {schema}.idempotency (key, event_id)
    select key, event_id from given order by key collate "C"
    on conflict do nothing returning key
)
select place from given join taken using (key)

-- name: publish_mark
-- notes in the transaction itself that a batch was published: a setting that is local to the transaction is taken back
-- together with the savepoint it was made in
select set_config('partbox.published', concat(current_setting('partbox.published', true), ' ', %(mark)s::text), true)

-- name: published_marks
-- the batches that no savepoint has taken back
select current_setting('partbox.published', true)

-- name: publish_copy
-- many events that leave every time to the database
copy {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                      payload, payload_bytes, content_type, headers) from stdin

-- name: publish_copy_timed
-- many events, some with times of their own
copy {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                      payload, payload_bytes, content_type, headers, available_at, occurred_at) from stdin

-- name: publish_clock
-- the database's clock, for events that are copied: microseconds since 1970
select (extract(epoch from clock_timestamp()) * 1000000)::bigint

-- name: publish_xid
-- the transaction, to be asked for later
select pg_current_xact_id()::text

-- name: published_status
-- what became of a transaction: committed, aborted, or in progress
select pg_xact_status(%(xid)s::text::xid8)
