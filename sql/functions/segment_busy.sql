-- purpose: Return whether a session keeps one of the given tables locked. A wait for such a table would delay all other sessions.
--
-- A session that waits for a table in use delays every later session, until its lock timeout ends. A poll or a publisher
-- releases its lock after an instant. A transaction that still holds a lock after 20 ms may hold it for an hour. Two readings
-- of pg_locks tell the two cases apart and delay nobody.
--
-- A prepared transaction has no pid. A lock that an autovacuum holds on the TOAST table alone counts, too.
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
