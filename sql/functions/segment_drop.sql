-- purpose: Drop the segments that were taken out of the log, and return their number.
--
-- The log is not locked, so nobody waits.
create or replace function {schema}.segment_drop()
returns integer language plpgsql security definer
set lock_timeout = '25ms' set client_min_messages = warning
set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    dropped integer := 0;
    name    text;
begin
    for name in
        select c.relname
          from pg_description d
          join pg_class c on c.oid = d.objoid and not c.relispartition and c.relname like 'record\_%'
         where d.classoid = 'pg_class'::regclass and d.objsubid = 0
               and d.description = 'Detached from the log, to be dropped.'
               and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = {schema_name})
    loop
        execute format('drop table if exists %I.%I', {schema_name}, name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end
$$;

revoke all on function {schema}.segment_drop() from public;
