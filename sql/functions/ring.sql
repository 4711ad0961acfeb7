-- purpose: wakes the worker that owns the partition, or all without one, if any sleeps: for events written by INSERT or COPY

-- Call it after them, in their transaction: what was written then is delivered as soon as it is committed. Without it they
-- are delivered too, within a quarter of a second, or two seconds where over 16 processes share the log. False: nobody
-- sleeps, the bell is off, or the server's notification queue is filling up.
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
