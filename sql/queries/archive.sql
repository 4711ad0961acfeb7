-- name: archive_state
-- Up to which id everything is in the archive (null: none is kept); the fence, as archive_fence wrote it; and the oldest
-- transaction that may still write: whatever ends later has at least its id.
select (select m.value::bigint from {schema}.meta m where m.key = 'archived_id'),
       (select m.value from {schema}.meta m where m.key = 'archive_fence'),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint

-- name: archive_begin
-- Keep an archive from now on, from the oldest record. It waits for the step of a purge that knows nothing of it.
insert into {schema}.meta as m (key, value)
select 'archived_id', '0' from (select {schema}.locked('purge', true) offset 0) as alone
    on conflict (key) do update set value = excluded.value where m.value is null
returning 1 as changed

-- name: archive_end
-- Keep none any more: purges remove what is in no archive. Whether one was kept.
update {schema}.meta m set value = null where m.key = 'archived_id' and m.value is not null returning 1 as changed

-- name: archive_drawn
-- The ids drawn so far.
select {schema}.drawn()

-- name: archive_fence
-- A fence, after `settled`, which is what an earlier one has proven: a transaction with a higher id than this one draws its
-- records' ids above `drawn`, which was read before this one got its id. So once all up to this one have ended, no record
-- up to `drawn` can appear any more.
insert into {schema}.meta as m (key, value)
values ('archive_fence', concat_ws(' ', %(settled)s::bigint, %(drawn)s::bigint, pg_current_xact_id()))
    on conflict (key) do update set value = excluded.value

-- name: archive_lock
-- One archives at a time: two would write the same twice. Held by a transaction that does nothing else, and has no xid: the
-- lock of a row would draw one, and what this one then waits for is the end of every transaction that has one. The view is
-- there for this alone, so it keeps no vacuum waiting; fails at once where somebody has it.
lock table {schema}.archiving in exclusive mode nowait

-- name: archive_holders
-- Who keeps the fence from being proven: the transactions up to its own that may still write, of any database of the server,
-- for ids are the server's. Each holds a lock on its id, which everybody may see.
with needed as (
    select l.pid, l.virtualtransaction
      from pg_locks l
      join {schema}.meta m on m.key = 'archive_fence'
     where l.granted and l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.pid is distinct from pg_backend_pid()
           and age(l.transactionid) >= age(split_part(m.value, ' ', 3)::xid8::xid)
     group by l.pid, l.virtualtransaction
)
{needed_by}

-- name: archive_others
-- Who archives just now.
with needed as (
    select l.pid, l.virtualtransaction
      from pg_locks l
     where l.granted and l.mode = 'ExclusiveLock' and l.relation = to_regclass(quote_ident({schema_name}) || '.archiving')
           and l.database = (select d.oid from pg_database d where d.datname = current_database())
)
{needed_by}

-- name: archive_patience
-- For as long as that takes.
select set_config('idle_in_transaction_session_timeout', '0', true)

-- name: archive_oldest
-- The age of the oldest record beyond `after`, in seconds; no row without one.
select (extract(epoch from clock_timestamp()) - extract(epoch from r.created_at))::float8
  from {schema}.record r
 where r.partition >= 0 and r.id > %(after)s::bigint
 order by r.id limit 1

-- name: archive_count
-- Of the records beyond `after`, those that are older than `retain` seconds, or up to `needed`.
select count(*)
  from {schema}.record r
 where r.partition >= 0 and r.id > %(after)s::bigint and r.id <= %(upto)s::bigint
       and (r.id <= %(needed)s::bigint
            or r.created_at < clock_timestamp() - least(%(retain)s::float8, 36500 * 86400.0) * interval '1 second')

-- name: archive_rows
-- The next records beyond `after` by id, as many as `bytes` hold, but one at least: all that must be known to read them back,
-- and whether each is older than `retain` seconds. Sizes are those on disk, of names those in memory, known without reading the values.
select r.id, r.partition, r.event_id::text, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id, r.payload::text,
       r.payload_bytes, r.content_type, r.headers::text,
       {archive_available}, {archive_occurred}, {archive_created},
       r.created_at < clock_timestamp() - least(%(retain)s::float8, 36500 * 86400.0) * interval '1 second'
  from (select n.*, sum(coalesce(pg_column_size(n.payload), 0) + coalesce(pg_column_size(n.payload_bytes), 0)
                        + coalesce(pg_column_size(n.headers), 0)
                        + octet_length(n.event_type) + octet_length(n.aggregate_type)
                        + coalesce(octet_length(n.aggregate_id), 0) + coalesce(octet_length(n.tenant_id), 0)
                        + coalesce(octet_length(n.content_type), 0)) over (order by n.id) as bytes,
               row_number() over (order by n.id) as place
          from (select * from {schema}.record n
                 where n.partition >= 0 and n.id > %(after)s::bigint and n.id <= %(upto)s::bigint
                 order by n.id limit %(most)s::integer) n) r
 where r.place = 1 or r.bytes <= %(bytes)s::bigint
 order by r.id

-- name: archive_available
-- A time as text that reads the same everywhere, whatever the session's settings are; infinities are words.
case when isfinite(r.available_at)
     then replace(to_char(r.available_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z" AD'), ' AD', '')
     else r.available_at::text end

-- name: archive_occurred
-- The same.
case when isfinite(r.occurred_at)
     then replace(to_char(r.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z" AD'), ' AD', '')
     else r.occurred_at::text end

-- name: archive_created
-- The same.
case when isfinite(r.created_at)
     then replace(to_char(r.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z" AD'), ' AD', '')
     else r.created_at::text end

-- name: archive_done
-- All up to `id` is in the archive, unless none is kept any more; nothing has failed since.
with done as (
    update {schema}.meta m set value = greatest(m.value::bigint, %(id)s::bigint)::text
     where m.key = 'archived_id' and m.value is not null
)
update {schema}.meta m set value = null where m.key = 'archive_failed' and m.value is not null

-- name: archive_failed
-- It fails, since when, and why; the first failure of a row stays.
insert into {schema}.meta as m (key, value)
values ('archive_failed', json_build_object('since', extract(epoch from clock_timestamp()), 'problem', %(problem)s::text)::text)
    on conflict (key) do update
       set value = (coalesce(m.value::jsonb, '{{}}') || jsonb_build_object('problem', %(problem)s::text)
                    || case when m.value is null then jsonb_build_object('since', extract(epoch from clock_timestamp()))
                            else '{{}}' end)::text
