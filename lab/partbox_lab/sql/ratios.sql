-- name: ratios_load
-- Insert records with payloads of about 200 bytes.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
select {schema}.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
       json_build_object('number', n, 'note', repeat('x', 150))
  from generate_series(1, %(events)s::integer) as n, lateral (select 'order-' || n %% %(aggregates)s::integer as key) as k

-- name: ratios_publish
-- Insert records as ratios_load does, in one transaction, with the headers that a publisher sends.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload, headers)
select {schema}.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
       json_build_object('number', n, 'note', repeat('x', 170)),
       '{{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-shop": "berlin"}}'
  from generate_series(1, %(events)s::integer) as n, lateral (select 'order-' || n %% %(aggregates)s::integer as key) as k

-- name: ratios_log
-- Return the columns of a record that a worker reads, in the order of the log.
select r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id, r.payload,
       r.payload_bytes, r.content_type, r.headers, r.available_at, r.occurred_at, r.created_at
  from {schema}.record r order by r.id

-- name: ratios_drained
-- Return the seconds from the claim of the partitions to the last save, and the bytes of WAL so far.
select extract(epoch from max(p.saved_at) - min(p.claimed_at))::float8 as seconds,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as wal
  from {schema}.partition p

-- name: ratios_relayed
-- Return the seconds from a time to the last save of the relay, and the last error of an event not sent at once.
select extract(epoch from max(p.saved_at) - %(began)s)::float8 as seconds,
       (select max(k.last_error) from {schema}.parked k) as refused
  from {schema}.partition p where p.subscription = 'relay'

-- name: ratios_now
-- Return the server's time.
select clock_timestamp() as now

-- name: ratios_sizes
-- Return the bytes of WAL so far, the bytes of all tables, and the number of their dead row versions.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as wal,
       (select sum(pg_total_relation_size(c.oid)) from pg_class c
         where c.relnamespace = {schema_name}::regnamespace and c.relkind = 'r')::float8 as stored,
       (select sum(t.n_tup_upd + t.n_tup_del) from pg_stat_all_tables t where t.schemaname = {schema_name})::float8 as dead

-- name: ratios_owners
-- Count the processes that own partitions.
select count(distinct p.owner) from {schema}.partition p

-- name: ratios_backlog
-- Count the events that are not delivered yet.
select coalesce(sum(b.count), 0) from {schema}.backlog b

-- name: ratios_sessions
-- Count partbox's sessions by purpose.
select application_name, count(*) from pg_stat_activity where application_name like 'partbox%%' group by 1

-- name: neighbours_plant
-- Insert a backlog of one customer, spread over so many aggregates.
insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload)
select {schema}.partition_of(k.key), gen_random_uuid(), %(type)s, 'Customer', k.key, %(tenant)s,
       json_build_object('n', n, 'at', %(at)s::float8)
  from generate_series(1, %(events)s::integer) as n,
       lateral (select %(tenant)s || case when %(keys)s::integer > 1 then '-' || n %% %(keys)s::integer else '' end as key) as k

-- name: neighbours_pids
-- Return the worker processes.
select i.pid from {schema}.instance i

-- name: neighbours_unowned
-- Count the partitions without an owner.
select count(*) from {schema}.partition p where p.owner is null

-- name: neighbours_rows
-- Count the parked rows of an aggregate.
select count(*) from {schema}.parked k where k.aggregate_id = %s

-- name: neighbours_parked
-- Count all parked rows.
select count(*) from {schema}.parked k

-- name: neighbours_left
-- Count the unfinished work: parked rows, aggregates with events in the log, and unread events.
select (select count(*) from {schema}.parked) + (select count(*) from {schema}.spill) + (select sum(b.count) from {schema}.backlog b)
