-- name: publish
-- one event; xid and id come from their defaults, so that the transaction id is always drawn first. A trigger may
-- keep it out and raise nothing: the number of rows proves that it was written, for drivers that tell it
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
values (%(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
        %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
        %(content_type)s::text, %(headers)s::json,
        coalesce(%(available_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(deliver_after)s::float8)),
        coalesce(%(occurred_at)s::timestamptz, clock_timestamp()))

-- name: publish_told
-- the same; a row proves that it was written
{publish}
returning true

-- name: publish_ringing
-- the same, and rings for a worker that sleeps; the row says whether it rang
{publish}
returning {rings}

-- name: publish_unheard
-- the same where nobody waits for the answer, as in a pipeline: an error unless it was written
with written as ({publish_told}, case when %(rings)s::boolean then {rings} end)
select case when count(*) < 1 then {unwritten} end from written

-- name: unwritten
-- Part of others: fails, and the transaction with it, so that nothing is published in part.
{schema}.refuse('a trigger or rule on a table of partbox keeps out what is published: nothing was; `partbox doctor` names it')

-- name: refuse_unwritten
-- fails with what is said of events that were kept out
select {unwritten}

-- name: several
-- Part of others: several events, in their order, from a JSON array of their columns. What is JSON itself travels as text,
-- and stays as it is written
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
select partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       payload::json, decode(payload_bytes, 'base64'), content_type, headers::json,
       coalesce(available_at, clock_timestamp() + make_interval(secs => deliver_after)),
       coalesce(occurred_at, clock_timestamp())
  from json_to_recordset(%(events)s::json) as given
       (partition smallint, event_id uuid, event_type text, aggregate_type text, aggregate_id text, tenant_id text,
        payload text, payload_bytes text, content_type text, headers text,
        available_at timestamptz, deliver_after float8, occurred_at timestamptz)
returning true

-- name: publish_several
-- several events: one statement and one round trip, whatever their number; an error unless all were written
with written as ({several})
select case when count(*) < %(number)s::bigint then {unwritten} end from written

-- name: publish_several_ringing
-- the same; whether a worker sleeps, who is rung for. Asked once they are written
with written as ({several})
select case when events < %(number)s::bigint then {unwritten} else {rings_many} end
  from (select count(*) from written) as written (events)

-- name: once
-- Part of others: one event with an idempotency key, unless that was used before. Waits for a transaction that holds the key.
-- Publishers may read no column of the log, so what it answers is a constant
with taken as (
    insert into {schema}.idempotency (key, event_id) values (%(idempotency_key)s::text, %(event_id)s::uuid)
    on conflict do nothing returning key
), written as (
    insert into {schema}.record
           (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
            payload, payload_bytes, content_type, headers, available_at, occurred_at)
    select %(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
           %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
           %(content_type)s::text, %(headers)s::json,
           coalesce(%(available_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(deliver_after)s::float8)),
           coalesce(%(occurred_at)s::timestamptz, clock_timestamp())
      from taken
    returning true

-- name: once_answer
-- Part of others: whether the key was taken; an error if so and the event was not written
)
select keys > 0, case when events < keys then {unwritten} end
  from (select count(*) from taken) as taken (keys), (select count(*) from written) as written (events)

-- name: publish_once
-- one event with an idempotency key; whether it was published, or the key was used before
{once} {once_answer}

-- name: publish_once_ringing
-- the same, which rings
{once}, {rings} {once_answer}

-- name: used_keys
-- how many of these idempotency keys are there
select count(*) from {schema}.idempotency where key = any(%(keys)s::text[])

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

-- name: published_anew
-- sets the marks again, behind a reset of all settings
select set_config('partbox.published', {marks}, true)

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

-- name: cancel
-- cancels a delayed event; whether that was in time. See the function
select {schema}.cancel(%(event_id)s::uuid, %(key)s::text, %(who)s::text)
