-- name: chaos_found
-- Return whether the schema exists, and whether `partbox chaos` made it.
select exists (select from pg_namespace where nspname = %(schema)s) as found,
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = %(schema)s and c.relname = 'chaos_account') as ours

-- name: chaos_living
-- Count the instances with a heartbeat within the last seconds.
select count(*) from {schema}.instance where heartbeat_at > clock_timestamp() - make_interval(secs => %(seconds)s)

-- name: chaos_allows
-- Return the server's limit of prepared transactions: 0 means no two-phase commit.
select current_setting('max_prepared_transactions')::integer

-- name: chaos_accounts
-- Create the table of aggregates that number their own events.
create table {schema}.chaos_account (aggregate text primary key, seq bigint not null default 0)

-- name: chaos_published
-- Create the table of published events. Publishers write to it in the same transaction, and unlike segments of the log
-- it is never emptied.
create table {schema}.chaos_published (event_id uuid not null, aggregate text, seq bigint)

-- name: chaos_note
-- Insert published events.
insert into {schema}.chaos_published (event_id, aggregate, seq)
select event_id::uuid, aggregate, seq
  from unnest(%(events)s::text[], %(aggregates)s::text[], %(numbers)s::bigint[]) as e (event_id, aggregate, seq)

-- name: chaos_noted
-- Return all published events.
select event_id::text, aggregate, seq from {schema}.chaos_published

-- name: chaos_open_accounts
-- Insert accounts that start at 0.
insert into {schema}.chaos_account (aggregate) select unnest(%(names)s::text[])

-- name: chaos_raise
-- Lock accounts in order and raise their numbers. A number is given out once, and a rollback takes it back.
with locked as (
    select aggregate from {schema}.chaos_account where aggregate = any (%(names)s) order by aggregate for update
)
update {schema}.chaos_account a set seq = a.seq + %(burst)s from locked where a.aggregate = locked.aggregate
returning a.aggregate, a.seq

-- name: chaos_insert
-- Insert an event with a large payload as an application does by plain SQL, and return its id.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
values ({schema}.partition_of(%(name)s), gen_random_uuid(), %(event_type)s, %(kind)s, %(name)s,
        json_build_object('seq', %(seq)s::bigint, 'more', repeat('x', %(size)s::integer)))
returning event_id::text

-- name: chaos_leap
-- Use up ids at once. Ids that other sessions draw meanwhile are lower.
select setval('{schema}.record_id_seq', nextval('{schema}.record_id_seq') + %(ids)s)

-- name: chaos_log
-- Return the events in the log, in the order of ids.
select event_id::text, aggregate_id, (payload ->> 'seq')::bigint from {schema}.record order by id

-- name: chaos_instances
-- Return the instances, with the seconds since their last heartbeat.
select instance_id, node, pid, extract(epoch from clock_timestamp() - heartbeat_at)::float8 from {schema}.instance

-- name: chaos_cursors
-- Return the cursor and the epoch of each partition.
select partition, epoch, last_id, floor_id, pg_snapshot_xmax(snapshot)::text::bigint as xmax, owner is not null as owned
  from {schema}.partition where subscription = 'default' order by partition

-- name: chaos_left
-- Count the records that are not done, including parked records.
select count(*) from {schema}.record_status where status <> 'done'

-- name: chaos_sessions
-- Return the sessions with an application name.
select pid from pg_stat_activity
 where datname = current_database() and application_name = %(name)s and pid <> pg_backend_pid() order by pid

-- name: chaos_cut
-- Terminate a session.
select pg_terminate_backend(%(pid)s)

-- name: chaos_strike
-- Terminate a session that holds an exclusive lock on a table. Return no row if it holds none.
select pg_terminate_backend(l.pid) from pg_locks l
 where l.pid = %(pid)s and l.locktype = 'relation' and l.mode = 'AccessExclusiveLock' and l.granted limit 1

-- name: chaos_prepared
-- Return the prepared transactions of this run that have not ended.
select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, %(prefix)s)

-- name: chaos_flag
-- Raise the bell's flag for some milliseconds, or lower it for null.
select setval(found.flag, coalesce((extract(epoch from clock_timestamp()) * 1000)::bigint + %(ahead)s::bigint, 1))
  from (select to_regclass({bell}) as flag offset 0) as found
 where found.flag is not null

-- name: chaos_wal
-- Write some bytes of WAL and nothing else.
select pg_logical_emit_message(false, 'chaos', repeat('x', %(size)s::integer))

-- name: chaos_wait
-- Sleep for some seconds.
select pg_sleep(%(seconds)s::float8)

-- name: chaos_left_over
-- Return a sentence for each fault of the segments after everything is done and purged: tables that are no segment, a
-- constraint that a killed step left, records that no subscription needs, and empty segments below the newest id.
select 'table ' || c.relname || ' is no segment'
  from pg_class c
 where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s)
       and c.relkind = 'r' and c.relname like 'record\_%%' and not exists (select from pg_inherits i where i.inhrelid = c.oid)
union all
select format('constraint segment_proof keeps out %%s to %%s', lower, upper) from {schema}.segment_proof()
union all
select format('%%s holds %%s records', s.name, count(*))
  from {schema}.segment_ranges() s
  join {schema}.record r on r.tableoid = s.segment
  join {schema}.partition p on p.partition = r.partition and r.id <= least(p.floor_id, p.last_id)
 group by s.name
union all
select s.name || ' is an empty shell'
  from {schema}.segment_ranges() s
 where s.upper - 1 <= pg_sequence_last_value({sequence})
       and not exists (select from {schema}.record r where r.tableoid = s.segment)

-- name: chaos_role
-- Create the role of the nodes, which owns nothing.
create role partbox_chaos_nodes login

-- name: chaos_change
-- Compose a statement that changes the nodes' rights or restarts a sequence, which gives it a new file. chaos_apply
-- runs it.
select set_config('lock_timeout', '500ms', false),
       set_config('partbox.chaos', format(case %(change)s::text
           when 'take' then 'revoke %%3$s on %%1$I.%%2$I from partbox_chaos_nodes'
           when 'give' then 'grant %%3$s on %%1$I.%%2$I to partbox_chaos_nodes'
           when 'hide' then 'alter table %%1$I.%%2$I enable row level security'
           when 'show' then 'alter table %%1$I.%%2$I disable row level security'
           when 'renew' then 'alter sequence if exists %%1$I.%%2$I restart'
           when 'limit' then 'alter role partbox_chaos_nodes connection limit %%3$s'
       end, {schema_name}, %(relation)s::text, %(what)s::text), false)

-- name: chaos_apply
-- Run the statement that chaos_change composed in this session.
do $$ begin execute current_setting('partbox.chaos'); end $$

-- name: chaos_small_queue
-- Shrink the notification queue to few pages, from the next start of the server on.
alter system set max_notify_queue_pages = 64

-- name: chaos_listen
-- Listen, in a session that then keeps a transaction open and reads no notifications.
listen partbox_chaos

-- name: chaos_stay
-- Take a snapshot in the open transaction.
select txid_current_snapshot()

-- name: chaos_notify
-- Send a large notification.
select pg_notify('partbox_chaos', repeat('x', 7900) || random())

-- name: chaos_written
-- Return the position up to which WAL was flushed.
select pg_current_wal_flush_lsn()::text

-- name: chaos_replayed
-- Return a row if a standby has replayed the WAL up to a position.
select from pg_stat_replication where replay_lsn >= %(position)s::pg_lsn limit 1

-- name: chaos_promote
-- Promote a standby and wait for that.
select pg_promote(true, 60)
