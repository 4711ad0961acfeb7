-- purpose: what an operator asks first: where a handler raised, which handlers hang, which processes are one node's
-- breaking: no

-- The last frames of the traceback of `last_error`; null where nothing was raised by a handler.
alter table {schema}.parked add column traceback text;

create or replace view {schema}.dead as
    select k.subscription, k.record_id, r.event_id, k.event_type, k.aggregate_type, k.aggregate_id, r.tenant_id,
           k.partition, k.attempts, k.parked_at as died_at, r.created_at as published_at, k.last_error as error,
           k.blocks, k.traceback
      from {schema}.parked k
      left join {schema}.record r on r.partition = k.partition and r.id = k.record_id
     where k.state = 'dead';

-- `running`: the handlers of this process that have run for long, written by itself when they change, as an array of
-- objects; null where there are none. `supervisor`: the node that the process belongs to, which a host may have several of.
alter table {schema}.instance add column running json, add column supervisor uuid;
