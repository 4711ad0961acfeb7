-- name: bench_load
-- Insert records with payloads of about 200 bytes, spread over 5,000 aggregates.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
select {schema}.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
       json_build_object('number', n, 'note', repeat('x', 150))
  from generate_series(%(first)s::bigint, %(last)s::bigint) as n, lateral (select 'order-' || n %% 5000 as key) as k

-- name: bench_load_skewed
-- Insert records as bench_load does, but skewed: one aggregate gets half of them, and the others get shares by Zipf's
-- law, the n-th 1/n of the first one's share.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
select {schema}.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
       json_build_object('number', n, 'note', repeat('x', 150))
  from generate_series(%(first)s::bigint, %(last)s::bigint) as n,
       lateral (select case when n %% 2 = 0 then 'order-hot' else 'order-' || floor(power(5000, random() + 0 * n)) end as key) as k

-- name: bench_load_large
-- Insert records with large payloads of a given size, in text that does not compress.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
select {schema}.partition_of('order-' || n), gen_random_uuid(), 'OrderPlaced', 'Order', 'order-' || n,
       json_build_object('number', n, 'note', noise)
  from generate_series(1, %(events)s::bigint) as n,
       lateral (select string_agg(encode(uuid_send(gen_random_uuid()), 'base64'), '') as noise
                  from generate_series(1, %(payload)s::integer / 24 + 0 * n::integer)) as made

-- name: bench_vacuum
-- Vacuum the log as autovacuum does, so that no autovacuum runs during the measurement.
vacuum (analyze) {schema}.record

-- name: bench_clear
-- Empty the log. Ids continue.
truncate {schema}.record

-- name: bench_rewind
-- Set every cursor to one position and remove all owners. A higher epoch fences old owners that might still save.
update {schema}.partition p
   set assignee = null, owner = null, epoch = p.epoch + 1, claimed_at = null, suspect_until_id = null,
       snapshot = %(snapshot)s::pg_snapshot, last_id = %(last_id)s::bigint, floor_id = %(last_id)s::bigint,
       saved_at = null

-- name: bench_unpark
-- Delete all parked rows.
delete from {schema}.parked

-- name: bench_position
-- Return the end of the log. All committed transactions are visible in the snapshot.
select pg_current_snapshot()::text, coalesce(pg_sequence_last_value({sequence}), 0)

-- name: bench_drained
-- Return the seconds from the first claim to the last save.
select extract(epoch from max(p.saved_at) - min(p.claimed_at))::float8 from {schema}.partition p

-- name: bench_owners
-- Return partition, owner, and epoch of the owned partitions.
select p.partition, p.owner, p.epoch from {schema}.partition p where p.owner is not null order by p.partition

-- name: bench_owned
-- Count the owned partitions.
select count(*) from {schema}.partition p where p.owner is not null

-- name: bench_passed
-- Return true if each partition of the subscription has an owner, and no record above its cursor.
select not exists (select from {schema}.partition p
                    where p.subscription = %(subscription)s
                          and (p.owner is null
                               or exists (select from {schema}.record r where r.partition = p.partition and r.id > p.last_id)))

-- name: bench_gathered
-- Return true if the subscriptions have the given number of instances, each instance owns a partition, and each
-- partition has an owner.
select (select count(*) from {schema}.instance i where i.subscription = any (%(subscriptions)s)) = %(members)s
       and (select count(distinct p.owner) = %(members)s and bool_and(p.owner is not null)
              from {schema}.partition p where p.subscription = any (%(subscriptions)s))

-- name: bench_free_connections
-- Return the number of sessions that a role without privileges can still open.
select current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0)
       - (select count(*) from pg_stat_activity a where a.backend_type = 'client backend')

-- name: bench_ages
-- Return the instances and the seconds since each joined.
select i.instance_id, extract(epoch from clock_timestamp() - i.started_at)::float8 from {schema}.instance i

-- name: bench_wal
-- Return the bytes of WAL written so far.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8

-- name: bench_calm
-- Turn autovacuum of the cursors off, so that all their dead rows are counted.
alter table {schema}.partition set (autovacuum_enabled = off)

-- name: bench_calmed
-- Remove the dead rows of the cursors.
vacuum {schema}.partition

-- name: bench_flush
-- Publish the statistics of this session at the end of the transaction.
select pg_stat_force_next_flush()

-- name: bench_dead
-- Count the dead rows of the schema's tables.
select coalesce(sum(t.n_dead_tup), 0)::float8 from pg_stat_all_tables t where t.schemaname = {schema_name}

-- name: bench_transactions
-- Count the ended transactions of this database.
select (d.xact_commit + d.xact_rollback)::float8 from pg_stat_database d where d.datname = current_database()

-- name: bench_backends
-- Return the server processes of sessions with an application name, and the start of each (unix time).
select a.pid, extract(epoch from a.backend_start)::float8 from pg_stat_activity a where a.application_name = %(name)s

-- name: bench_me
-- Return the server process of this session, and its start (unix time).
select a.pid, extract(epoch from a.backend_start)::float8 from pg_stat_activity a where a.pid = pg_backend_pid()

-- name: bench_xid
-- Make the transaction a writing one, by giving it an id.
select pg_current_xact_id()::text

-- name: bench_settings
-- Return the server's settings that affect the measurements, as `show` prints them.
select s.name, current_setting(s.name)
  from pg_settings s
 where s.name in ('shared_buffers', 'synchronous_commit', 'fsync', 'full_page_writes', 'wal_level', 'max_wal_size',
                  'checkpoint_timeout', 'wal_compression', 'autovacuum', 'max_connections',
                  'synchronous_standby_names', 'max_prepared_transactions')
 order by s.name

-- name: bench_version
-- Return the server's version.
select current_setting('server_version')

-- name: bench_iterate
-- Return the columns of a record that a worker reads.
select r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id, r.payload,
       r.payload_bytes, r.content_type, r.headers, r.available_at, r.occurred_at, r.created_at
  from {schema}.record r

-- name: bench_insert
-- Insert one event without the library.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
values (%(partition)s, %(event_id)s, %(event_type)s, %(aggregate_type)s, %(aggregate_id)s, %(payload)s::json)

-- name: bench_accounts
-- Create the table that an application changes in the transaction that publishes.
create table if not exists {schema}.account (id integer primary key, changes bigint not null) with (fillfactor = 20)

-- name: bench_accounts_fill
-- Insert the accounts.
insert into {schema}.account (id, changes)
select id, 0 from generate_series(0, %(accounts)s::integer - 1) as id on conflict do nothing

-- name: bench_account_change
-- Change one account.
update {schema}.account as a set changes = a.changes + 1 where a.id = %(account)s

-- name: bench_textbook
-- Create the textbook outbox: one table, whose oldest rows are locked, rows locked by others skipped, and handled rows
-- deleted.
create table if not exists {schema}.textbook (
    id             bigint generated always as identity primary key,
    event_id       uuid not null,
    event_type     text not null,
    aggregate_type text not null,
    aggregate_id   text,
    tenant_id      text,
    payload        json,
    payload_bytes  bytea,
    content_type   text,
    headers        json,
    available_at   timestamptz,
    occurred_at    timestamptz not null,
    created_at     timestamptz not null
)

-- name: bench_textbook_clear
-- Remove the rows of the last round.
truncate {schema}.textbook

-- name: bench_textbook_fill
-- Copy the oldest records of the log.
insert into {schema}.textbook (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes,
                               content_type, headers, available_at, occurred_at, created_at)
select r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id, r.payload, r.payload_bytes,
       r.content_type, r.headers, r.available_at, r.occurred_at, r.created_at
  from {schema}.record r order by r.id limit %(events)s

-- name: bench_textbook_vacuum
-- Vacuum the table as autovacuum does.
vacuum (analyze) {schema}.textbook

-- name: bench_textbook_page
-- Lock and return a page of events that no other session works on.
select t.id, t.event_id, t.event_type, t.aggregate_type, t.aggregate_id, t.tenant_id, t.payload, t.payload_bytes,
       t.content_type, t.headers, t.available_at, t.occurred_at, t.created_at
  from {schema}.textbook t order by t.id limit 100 for update skip locked

-- name: bench_textbook_done
-- Delete the handled events.
delete from {schema}.textbook t where t.id = any(%(ids)s)

-- name: bench_pgq_found
-- Return whether PgQ's functions may be used, exist, or could be installed.
select coalesce(has_function_privilege(to_regprocedure('pgq.create_queue(text)')::oid, 'execute'), false),
       to_regprocedure('pgq.create_queue(text)') is not null,
       exists (select from pg_available_extensions e where e.name = 'pgq')

-- name: bench_pgq_create
-- Create the queue of the bench, with one consumer.
select pgq.create_queue(%(queue)s), pgq.register_consumer(%(queue)s, 'partbox_bench')

-- name: bench_pgq_drop
-- Drop the queue if it exists.
select pgq.drop_queue(q.queue_name, true) from pgq.queue q where q.queue_name = %(queue)s

-- name: bench_pgq_fill
-- Insert events with the data of records, for one batch.
select count(pgq.insert_event(%(queue)s, r.event_type, r.payload::text, r.aggregate_type, r.aggregate_id,
                              r.event_id::text, null))
  from {schema}.record r where r.id between %(first)s and %(last)s

-- name: bench_pgq_force
-- Force the next tick, whatever the settings of the queue.
select pgq.force_tick(%(queue)s)

-- name: bench_pgq_tick
-- Tick: everything committed until now becomes a batch.
select pgq.ticker(%(queue)s)

-- name: bench_pgq_next
-- Return the next batch, or null if there is none.
select pgq.next_batch(%(queue)s, 'partbox_bench')

-- name: bench_pgq_events
-- Return the events of a batch.
select e.ev_id, e.ev_time, e.ev_type, e.ev_data, e.ev_extra1, e.ev_extra2, e.ev_extra3
  from pgq.get_batch_events(%(batch)s) e

-- name: bench_pgq_finish
-- Mark a batch as handled.
select pgq.finish_batch(%(batch)s)

-- name: bench_prepared
-- Return the number of prepared transactions.
select count(*) from pg_prepared_xacts

-- name: bench_leave_open
-- Leave a transaction with an id open. It needs no session.
begin;
select pg_current_xact_id();
prepare transaction %(name)s

-- name: bench_load_troubled
-- Insert records as bench_load does, spread over a number of aggregates. Each is due after `delay` seconds, or at once if that is null.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload, available_at)
select {schema}.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
       json_build_object('number', n, 'note', repeat('x', 150)), clock_timestamp() + make_interval(secs => %(delay)s::float8)
  from generate_series(1, %(events)s::bigint) as n,
       lateral (select 'order-' || n %% %(aggregates)s::bigint as key) as k

-- name: bench_parked
-- Count the parked rows.
select count(*) from {schema}.parked

-- name: bench_make_due
-- Let all parked rows be due now. The partitions are locked first and get a new version, as a command does.
with held as materialized (
    select p.subscription, p.partition from {schema}.partition p order by p.subscription, p.partition for no key update
), told as (
    update {schema}.partition p set parked_version = p.parked_version + 1
      from held where p.subscription = held.subscription and p.partition = held.partition
)
update {schema}.parked k set due_at = clock_timestamp()
 where (select count(*) from held) > 0 and k.due_at is not null

-- name: bench_fill_attempts
-- Insert attempts of records that are gone.
insert into {schema}.attempt (subscription, record_id, attempt, outcome)
select 'default', n, 1, 'failed' from generate_series(1, %(number)s::bigint) n

-- name: bench_note_purged
-- Note that records up to this id have been purged.
insert into {schema}.meta (key, value) values ('purged_id', %(number)s::bigint::text)
    on conflict (key) do update set value = excluded.value

-- name: bench_entries_read
-- Count the rows and index entries of the log that sessions have read and flushed to the statistics.
select coalesce((select sum(t.seq_tup_read) from pg_stat_all_tables t
                  where t.schemaname = {schema_name} and t.relname like 'record%%'), 0)::float8
       + coalesce((select sum(i.idx_tup_read) from pg_stat_all_indexes i
                    where i.schemaname = {schema_name} and i.relname like 'record%%'), 0)::float8
