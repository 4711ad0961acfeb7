-- purpose: what an operator asks first: where a handler raised, which handlers hang, which processes are one node's
-- breaking: no

-- The last frames of the traceback of `last_error`; null where nothing was raised by a handler.
alter table {schema}.parked add column traceback text;

-- `running`: the handlers of this process that have run for long, written by itself when they change, as an array of
-- objects; null where there are none. `supervisor`: the node that the process belongs to, which a host may have several of.
alter table {schema}.instance add column running json, add column supervisor uuid;
