-- name: chaos_found
-- True if the schema exists; true if `partbox chaos` made it.
select exists (select from pg_namespace where nspname = %(schema)s) as found,
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = %(schema)s and c.relname = 'chaos_account') as ours

-- name: chaos_living
-- The number of instances with a heartbeat within the last seconds.
select count(*) from {schema}.instance where heartbeat_at > clock_timestamp() - make_interval(secs => %(seconds)s)

-- name: chaos_allows
-- The limit of prepared transactions: 0 without two-phase commit.
select current_setting('max_prepared_transactions')::integer

-- name: chaos_accounts
-- The aggregates that number their own events.
create table {schema}.chaos_account (aggregate text primary key, seq bigint not null default 0)

-- name: chaos_open_accounts
-- Add accounts.
insert into {schema}.chaos_account (aggregate) select unnest(%(names)s::text[])

-- name: chaos_raise
-- Lock accounts in order and raise their numbers: a number is given out once, and a rollback takes it back.
with locked as (
    select aggregate from {schema}.chaos_account where aggregate = any (%(names)s) order by aggregate for update
)
update {schema}.chaos_account a set seq = a.seq + %(burst)s from locked where a.aggregate = locked.aggregate
returning a.aggregate, a.seq

-- name: chaos_insert
-- An event with a large payload, as an application that writes SQL inserts it; its id.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
values ({schema}.partition_of(%(name)s), gen_random_uuid(), %(event_type)s, %(kind)s, %(name)s,
        json_build_object('seq', %(seq)s::bigint, 'more', repeat('x', %(size)s::integer)))
returning event_id::text

-- name: chaos_leap
-- Use up this many ids at once; ids drawn meanwhile by others are below them.
select setval('{schema}.record_id_seq', nextval('{schema}.record_id_seq') + %(ids)s)

-- name: chaos_log
-- The events of the log.
select event_id::text, aggregate_id, (payload ->> 'seq')::bigint from {schema}.record order by id

-- name: chaos_instances
-- The members of the cluster, with the seconds since their last heartbeat.
select instance_id, node, pid, extract(epoch from clock_timestamp() - heartbeat_at)::float8 from {schema}.instance

-- name: chaos_cursors
-- The cursor and the epoch of each partition.
select partition, epoch, last_id, floor_id, pg_snapshot_xmax(snapshot)::text::bigint as xmax, owner is not null as owned
  from {schema}.partition where subscription = 'default' order by partition

-- name: chaos_left
-- The number of records that are not done, parked ones included.
select count(*) from {schema}.record_status where status <> 'done'

-- name: chaos_sessions
-- The sessions with this application name.
select pid from pg_stat_activity
 where datname = current_database() and application_name = %(name)s and pid <> pg_backend_pid() order by pid

-- name: chaos_cut
-- End a session.
select pg_terminate_backend(%(pid)s)

-- name: chaos_prepared
-- Our prepared transactions that have not ended.
select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, %(prefix)s)

-- name: chaos_flag
-- Set the bell's flag so far ahead, in milliseconds, or back.
select setval(found.flag, coalesce((extract(epoch from clock_timestamp()) * 1000)::bigint + %(ahead)s::bigint, 1))
  from (select to_regclass({bell}) as flag offset 0) as found
 where found.flag is not null
