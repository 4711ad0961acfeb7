-- purpose: whether somebody keeps one of these tables locked, so that waiting for it would only hold up everybody else
--
-- Who waits for a table that is in use stands in front of everybody who comes later, until his patience ends. A poll or
-- a publisher is gone in an instant; a transaction that was there a moment ago and still is may stay for an hour. Looking
-- twice tells them apart and stands in nobody's way. A prepared transaction has no pid. What an autovacuum of the large
-- values alone has locked counts too.
create or replace function {schema}.segment_busy(tables oid[])
returns boolean language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    locked  oid[] := tables || array(select c.reltoastrelid from pg_class c where c.oid = any (tables) and c.reltoastrelid <> 0);
    holders text[];
begin
    select array_agg(l.virtualtransaction || ' ' || coalesce(l.pid, 0)) into holders
      from pg_locks l
     where l.locktype = 'relation' and l.granted and l.relation = any (locked) and l.pid is distinct from pg_backend_pid()
           and l.database = (select d.oid from pg_database d where d.datname = current_database());
    if holders is null then
        return false;
    end if;
    perform pg_sleep(0.02);
    return exists (
        select from pg_locks l
         where l.locktype = 'relation' and l.granted and l.relation = any (locked)
               and l.database = (select d.oid from pg_database d where d.datname = current_database())
               and l.virtualtransaction || ' ' || coalesce(l.pid, 0) = any (holders));
end
$$;
