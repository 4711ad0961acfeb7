-- A stand-in for PgQ, which no server of the tests has: the functions that the bench calls, with PgQ's signatures.

create schema pgq;

create table pgq.queue (queue_name text primary key);
create table pgq.event (queue_name text, ev_id bigserial, batch bigint, ev_type text, ev_data text,
                        ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text);
create table pgq.batch (id bigserial, queue_name text, finished boolean not null default false);

create function pgq.create_queue(x_queue text) returns integer language sql as
    'insert into pgq.queue values (x_queue) returning 1';

create function pgq.register_consumer(x_queue text, x_consumer text) returns integer language sql as 'select 1';

create function pgq.drop_queue(x_queue text, x_force boolean) returns integer language sql as
    'delete from pgq.event where queue_name = x_queue; delete from pgq.queue where queue_name = x_queue returning 1';

create function pgq.insert_event(x_queue text, x_type text, x_data text, x1 text, x2 text, x3 text, x4 text)
    returns bigint language sql as
    'insert into pgq.event (queue_name, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
     values (x_queue, x_type, x_data, x1, x2, x3, x4) returning ev_id';

create function pgq.force_tick(x_queue text) returns bigint language sql as 'select 1::bigint';

create function pgq.ticker(x_queue text) returns bigint language sql as
    'with made as (insert into pgq.batch (queue_name) values (x_queue) returning id)
     update pgq.event set batch = (select id from made) where queue_name = x_queue and batch is null returning batch';

create function pgq.next_batch(x_queue text, x_consumer text) returns bigint language sql as
    'select min(id) from pgq.batch where queue_name = x_queue and not finished';

create function pgq.get_batch_events(x_batch bigint, out ev_id bigint, out ev_time timestamptz, out ev_type text,
                                     out ev_data text, out ev_extra1 text, out ev_extra2 text, out ev_extra3 text)
    returns setof record language sql as
    'select e.ev_id, now(), e.ev_type, e.ev_data, e.ev_extra1, e.ev_extra2, e.ev_extra3
       from pgq.event e where e.batch = x_batch';

create function pgq.finish_batch(x_batch bigint) returns integer language sql as
    'update pgq.batch set finished = true where id = x_batch returning 1';
