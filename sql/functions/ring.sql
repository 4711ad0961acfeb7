-- purpose: Wake the worker that owns the partition, or all workers if none is given, after events were written by INSERT or COPY.

-- Call the function after the events were written, in the same transaction. The events are then delivered as soon as the
-- transaction is committed. Without the call the events are delivered within a quarter of a second, or within two seconds if
-- more than 16 processes share the log. The function returns false if no worker sleeps, if the bell is off, or if the
-- server's notification queue is filling up.
create or replace function {schema}.ring(partition integer default null) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    bell oid := to_regclass({bell});
begin
    if has_sequence_privilege(bell, 'SELECT') then
        if pg_sequence_last_value(bell) - (extract(epoch from clock_timestamp()) * 1000)::bigint between 1 and 3000 then
            return {schema}.tell(coalesce(partition::text, '*'));
        end if;
    end if;
    return false;
end
$$;
