-- name: peers_create_database
-- Create the database of one run. The schema parameter takes its name, so that it is quoted.
create database {schema}

-- name: peers_drop_database
-- Drop the database of one run and end all sessions in it.
drop database if exists {schema} with (force)

-- name: peers_checkpoint
-- Checkpoint now, so that none falls into the next run.
checkpoint

-- name: peers_vacuum
-- Vacuum the tables as autovacuum does, so that no autovacuum runs during the measurement.
vacuum (analyze)

-- name: peers_extensions
-- Return the extensions that could be created.
select e.name from pg_available_extensions e

-- name: peers_dead
-- Count the row versions that updates and deletes have left in this database.
select coalesce(sum(t.n_tup_upd + t.n_tup_del), 0)::bigint from pg_stat_user_tables t

-- name: peers_others
-- Return a row if another session is connected to this database.
select from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid() limit 1

-- name: peers_textbook_create
-- Create the textbook outbox, with a trigger that notifies once per statement.
create table outbox (id bigint generated always as identity primary key, type text not null, key text not null,
                     payload json not null, created_at timestamptz not null default now());
create function ring() returns trigger language plpgsql as $$ begin notify outbox; return null; end $$;
create trigger ring after insert on outbox for each statement execute function ring()

-- name: peers_textbook_insert
insert into outbox (type, key, payload)
select 'OrderPlaced', key, payload from unnest(%(keys)s::text[], %(payloads)s::json[]) as new (key, payload)

-- name: peers_textbook_listen
listen outbox

-- name: peers_textbook_claim
-- Lock and return a page of rows that no other session has.
select id, key, payload::text from outbox order by id limit 100 for update skip locked

-- name: peers_textbook_delete
delete from outbox where id = any(%(ids)s)

-- name: peers_textbook_waiting
-- Return a row if one is left to do. The other queries named "waiting" do the same for their peers.
select from outbox limit 1

-- name: peers_graphile_add
-- Add one job as Graphile Worker's documentation does.
select graphile_worker.add_job('handle', %(payload)s::json, queue_name => %(queue)s)

-- name: peers_graphile_add_many
select count(*) from graphile_worker.add_jobs(array(
         select row('handle', payload, queue, null, null, null, null, null)::graphile_worker.job_spec
           from unnest(%(payloads)s::json[], %(queues)s::text[]) as new (payload, queue)))

-- name: peers_graphile_waiting
select from graphile_worker._private_jobs limit 1

-- name: peers_pgboss_insert
insert into pgboss.job (name, data, singleton_key, policy)
select 'events', data, key, %(policy)s from unnest(%(payloads)s::jsonb[], %(keys)s::text[]) as new (data, key)

-- name: peers_pgboss_waiting
select from pgboss.job where name = 'events' and state < 'completed' limit 1

-- name: peers_pgqueuer_enqueue
with queued as (
  insert into pgqueuer (priority, entrypoint, payload, status)
  select 0, 'handle', payload, 'queued' from unnest(%(payloads)s::bytea[]) as payload
  returning id, entrypoint, priority)
insert into pgqueuer_log (job_id, status, entrypoint, priority)
select id, 'queued', entrypoint, priority from queued

-- name: peers_pgqueuer_waiting
select from pgqueuer limit 1

-- name: peers_procrastinate_defer
select procrastinate_defer_jobs_v1(array(
         select row('events', 'handle', 0, lock, null, arguments, null)::procrastinate_job_to_defer_v1
           from unnest(%(locks)s::text[], %(payloads)s::jsonb[]) as new (lock, arguments)))

-- name: peers_procrastinate_waiting
select from procrastinate_jobs limit 1

-- name: peers_pgq_extension
create extension pgq

-- name: peers_pgq_create
-- Create a queue with one consumer. It ticks whenever asked, and at most 100 ms after an event that was being committed
-- during a tick.
select pgq.create_queue(%(queue)s), pgq.set_queue_config(%(queue)s, 'ticker_max_lag', '0'),
       pgq.set_queue_config(%(queue)s, 'ticker_idle_period', '100 ms'), pgq.register_consumer(%(queue)s, 'bench')

-- name: peers_pgq_insert
select count(pgq.insert_event(queue, 'OrderPlaced', data, key, null, null, null))
  from unnest(%(queues)s::text[], %(payloads)s::text[], %(keys)s::text[]) as new (queue, data, key)

-- name: peers_pgq_tick
select pgq.ticker()

-- name: peers_pgq_next
-- Return the next batch, or null if there is none.
select pgq.next_batch(%(queue)s, 'bench')

-- name: peers_pgq_events
select ev_id, ev_type, ev_data, ev_extra1 from pgq.get_batch_events(%(batch)s)

-- name: peers_pgq_finish
select pgq.finish_batch(%(batch)s)

-- name: peers_pgq_pending
-- Count the events that no consumer has finished.
select coalesce(sum(pending_events), 0) from pgq.get_consumer_info()
