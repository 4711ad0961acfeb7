-- name: publish
-- The statement inserts one event. `xid` and `id` come from their defaults, so that the transaction id is always drawn first. A trigger
-- may keep the event out without an error. The number of rows proves that the event was written, for drivers that report this number.
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
values (%(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
        %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
        %(content_type)s::text, %(headers)s::json,
        coalesce(%(available_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(deliver_after)s::float8)),
        coalesce(%(occurred_at)s::timestamptz, clock_timestamp()))

-- name: publish_told
-- The statement does the same as `publish`. A row proves that the event was written.
{publish}
returning true

-- name: publish_ringing
-- The statement does the same as `publish` and sends a notification if a worker sleeps. The row says whether it has sent one.
{publish}
returning {rings}

-- name: publish_unheard
-- The statement does the same as `publish` where nobody waits for the answer, as in a pipeline. It fails unless the event was written.
with written as ({publish_told}, case when %(rings)s::boolean then {rings} end)
select case when count(*) < 1 then {unwritten} end from written

-- name: unwritten
-- Other queries contain this expression. It fails, and the transaction with it, so that nothing is published in part.
{schema}.refuse('a trigger or rule on a table of partbox keeps out what is published: nothing was; `partbox doctor` names it')

-- name: refuse_unwritten
-- The query fails with the error for events that were kept out.
select {unwritten}

-- name: several
-- Other queries contain this statement. It inserts several events, in their order, from a JSON array of their columns. JSON values travel
-- as text, so that they are stored exactly as they were written.
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
-- The statement inserts several events in one round trip, whatever their number. It fails unless all were written.
with written as ({several})
select case when count(*) < %(number)s::bigint then {unwritten} end from written

-- name: publish_several_ringing
-- The statement does the same as `publish_several` and sends notifications if a worker sleeps. It returns whether it has sent any. The
-- flag is read after the events are written.
with written as ({several})
select case when events < %(number)s::bigint then {unwritten} else {rings_many} end
  from (select count(*) from written) as written (events)

-- name: once
-- Other queries contain this beginning of a statement. It inserts one event with an idempotency key, unless the key was used before. It
-- waits for a transaction that holds the key. Publishers may read no column of the log, so the INSERT returns a constant.
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
-- Other queries contain this end of a statement. It returns whether the key was free. It fails if the key was free and the event was not
-- written.
)
select keys > 0, case when events < keys then {unwritten} end
  from (select count(*) from taken) as taken (keys), (select count(*) from written) as written (events)

-- name: publish_once
-- The statement inserts one event with an idempotency key. It returns true if the event was published, and false if the key was used
-- before.
{once} {once_answer}

-- name: publish_once_ringing
-- The statement does the same as `publish_once` and sends a notification if a worker sleeps.
{once}, {rings} {once_answer}

-- name: used_keys
-- The query returns how many of these idempotency keys exist.
select count(*) from {schema}.idempotency where key = any(%(keys)s::text[])

-- name: take_keys
-- The statement takes the idempotency keys of several events. It returns the positions (in the list of events) of the keys that were
-- unused. The keys are sorted in the same way everywhere, so that two publishers of the same keys wait for each other once, and never in
-- a circle.
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
-- The statement notes in the transaction itself that a batch was published. A rollback to an earlier savepoint also takes back a setting
-- that is local to the transaction.
select set_config('partbox.published', concat(current_setting('partbox.published', true), ' ', %(mark)s::text), true)

-- name: published_marks
-- The query returns the batches that no rollback to a savepoint has taken back.
select current_setting('partbox.published', true)

-- name: published_anew
-- The statement sets the marks again after a reset of all settings.
select set_config('partbox.published', {marks}, true)

-- name: publish_copy
-- The statement copies many events whose times are all left to the database.
copy {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                      payload, payload_bytes, content_type, headers) from stdin

-- name: publish_copy_timed
-- The statement copies many events, some with times of their own.
copy {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                      payload, payload_bytes, content_type, headers, available_at, occurred_at) from stdin

-- name: publish_clock
-- The query returns the database's clock in microseconds since 1970, for events that are copied.
select (extract(epoch from clock_timestamp()) * 1000000)::bigint

-- name: publish_xid
-- The query returns the id of the transaction, for `published_status`.
select pg_current_xact_id()::text

-- name: published_status
-- The query returns the status of a transaction: committed, aborted, or in progress.
select pg_xact_status(%(xid)s::text::xid8)

-- name: cancel
-- The query cancels a delayed event and returns whether that was in time; see the function `cancel`.
select {schema}.cancel(%(event_id)s::uuid, %(key)s::text, %(who)s::text, %(reason)s::text)
