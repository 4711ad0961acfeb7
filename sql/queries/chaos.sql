-- name: chaos_found
-- Whether the schema exists, whether `partbox chaos` made it, and its instances that live, as far as is known.
select exists (select from pg_namespace where nspname = %(schema)s) as found,
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = %(schema)s and c.relname = 'chaos_account') as ours

-- name: chaos_living
-- Who has shown life within the last so many seconds.
select count(*) from {schema}.instance where heartbeat_at > clock_timestamp() - make_interval(secs => %(seconds)s)

-- name: chaos_allows
-- What the server allows: two-phase commit.
select current_setting('max_prepared_transactions')::integer

-- name: chaos_accounts
-- The aggregates that number their own events.
create table {schema}.chaos_account (aggregate text primary key, seq bigint not null default 0)

-- name: chaos_open_accounts
-- Make them.
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
-- Use up so many ids at once: what is drawn meanwhile by others is below them.
select setval('{schema}.record_id_seq', nextval('{schema}.record_id_seq') + %(ids)s)

-- name: chaos_log
-- What is in the log.
select event_id::text, aggregate_id, (payload ->> 'seq')::bigint from {schema}.record order by id

-- name: chaos_instances
-- Who is a member of the cluster, and how many seconds ago it was last heard of.
select instance_id, node, pid, extract(epoch from clock_timestamp() - heartbeat_at)::float8 from {schema}.instance

-- name: chaos_cursors
-- How far each partition is, and under which epoch.
select partition, epoch, last_id, floor_id, pg_snapshot_xmax(snapshot)::text::bigint as xmax, owner is not null as owned
  from {schema}.partition where subscription = 'default' order by partition

-- name: chaos_left
-- How many records are not done; parked ones are among them.
select count(*) from {schema}.record_status where status <> 'done'

-- name: chaos_sessions
-- The sessions of some of ours, by how they call themselves.
select pid from pg_stat_activity
 where datname = current_database() and application_name = %(name)s and pid <> pg_backend_pid() order by pid

-- name: chaos_cut
-- End a session.
select pg_terminate_backend(%(pid)s)

-- name: chaos_prepared
-- Prepared transactions of ours that nobody has ended.
select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, %(prefix)s)
