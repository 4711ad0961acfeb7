-- name: archive_state
-- The query returns one row: the id up to which all records are in the archive (null if no archive is kept), the fence as `archive_fence`
-- wrote it, and the oldest transaction that may still write. Every transaction that ends later has at least the id of that transaction.
select (select m.value::bigint from {schema}.meta m where m.key = 'archived_id'),
       (select m.value from {schema}.meta m where m.key = 'archive_fence'),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint

-- name: archive_begin
-- The statement starts an archive, which begins with the oldest record. It waits for the running step of a purge, which knows nothing of
-- the archive. It returns a row if no archive was kept before.
insert into {schema}.meta as m (key, value)
select 'archived_id', '0' from (select {schema}.locked('purge', true) offset 0) as alone
    on conflict (key) do update set value = excluded.value where m.value is null
returning 1 as changed

-- name: archive_end
-- The statement ends the archive. From now on, purges delete records that are in no archive. The statement returns a row if an archive
-- was kept.
update {schema}.meta m set value = null where m.key = 'archived_id' and m.value is not null returning 1 as changed

-- name: archive_drawn
-- The query returns the highest id that was drawn.
select {schema}.drawn()

-- name: archive_fence
-- The statement writes a fence, which has three numbers: `settled`, the id that an earlier fence has proven; `drawn`, the highest id that
-- was drawn, which was read before this transaction got its id; and the id of this transaction. A transaction with a higher id than this
-- one draws the ids of its records above `drawn`. So once all transactions up to this one have ended, no record with an id up to `drawn`
-- can appear any more.
insert into {schema}.meta as m (key, value)
values ('archive_fence', concat_ws(' ', %(settled)s::bigint, %(drawn)s::bigint, pg_current_xact_id()))
    on conflict (key) do update set value = excluded.value

-- name: archive_lock
-- Only one process archives at a time, because two would write the same records twice. The transaction that holds the lock does nothing
-- else and has no transaction id. The lock of a row would give it one, and the archiver waits for the end of every transaction that has
-- one. The view `archiving` exists only to be locked, so the lock delays no vacuum. The statement fails at once if another process holds
-- the lock.
lock table {schema}.archiving in exclusive mode nowait

-- name: archive_holders
-- The query returns the transactions that keep the fence from being proven, in the form of `needed_by`. They have ids up to the one in
-- the fence and may still write. They can belong to any database, because the server has one sequence of transaction ids. Every
-- transaction holds a lock on its own id, which every role may see.
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
-- The query returns the process that archives at the moment, in the form of `needed_by`.
with needed as (
    select l.pid, l.virtualtransaction
      from pg_locks l
     where l.granted and l.mode = 'ExclusiveLock' and l.relation = to_regclass(quote_ident({schema_name}) || '.archiving')
           and l.database = (select d.oid from pg_database d where d.datname = current_database())
)
{needed_by}

-- name: archive_patience
-- The transaction that holds the lock is idle for as long as the archiving takes, so its idle timeout is off.
select set_config('idle_in_transaction_session_timeout', '0', true)

-- name: archive_oldest
-- The query returns the age in seconds of the oldest record with an id above `after`. It returns no row if there is no such record.
select (extract(epoch from clock_timestamp()) - extract(epoch from r.created_at))::float8
  from {schema}.record r
 where r.partition >= 0 and r.id > %(after)s::bigint
 order by r.id limit 1

-- name: archive_count
-- The query counts the records above `after` and up to `upto` that are older than `retain` seconds or have ids up to `needed`.
select count(*)
  from {schema}.record r
 where r.partition >= 0 and r.id > %(after)s::bigint and r.id <= %(upto)s::bigint
       and (r.id <= %(needed)s::bigint
            or r.created_at < clock_timestamp() - least(%(retain)s::float8, 36500 * 86400.0) * interval '1 second')

-- name: archive_rows
-- The query returns the next records above `after`, by id. Together they have at most `bytes` bytes, but one record is always returned.
-- The columns hold everything that is needed to restore a record. The last column says whether the record is older than `retain` seconds.
-- The size of a payload or of headers is their size on disk, and the size of a name is its size in memory. Both are known without reading
-- the values.
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
-- Other queries contain this expression. It is `available_at` as text that does not depend on the settings of the session. Infinite times
-- are written as words.
case when isfinite(r.available_at)
     then replace(to_char(r.available_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z" AD'), ' AD', '')
     else r.available_at::text end

-- name: archive_occurred
-- The expression formats `occurred_at` as `archive_available` formats `available_at`.
case when isfinite(r.occurred_at)
     then replace(to_char(r.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z" AD'), ' AD', '')
     else r.occurred_at::text end

-- name: archive_created
-- The expression formats `created_at` as `archive_available` formats `available_at`.
case when isfinite(r.created_at)
     then replace(to_char(r.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z" AD'), ' AD', '')
     else r.created_at::text end

-- name: archive_done
-- The statement notes that all records up to `id` are in the archive, unless no archive is kept any more, and that archiving does not
-- fail any more.
with done as (
    update {schema}.meta m set value = greatest(m.value::bigint, %(id)s::bigint)::text
     where m.key = 'archived_id' and m.value is not null
)
update {schema}.meta m set value = null where m.key = 'archive_failed' and m.value is not null

-- name: archive_failed
-- The statement notes that archiving fails, since when (Unix time), and why. If it has failed before without a success since, the time of
-- the first failure is kept.
insert into {schema}.meta as m (key, value)
values ('archive_failed', json_build_object('since', extract(epoch from clock_timestamp()), 'problem', %(problem)s::text)::text)
    on conflict (key) do update
       set value = (coalesce(m.value::jsonb, '{{}}') || jsonb_build_object('problem', %(problem)s::text)
                    || case when m.value is null then jsonb_build_object('since', extract(epoch from clock_timestamp()))
                            else '{{}}' end)::text
