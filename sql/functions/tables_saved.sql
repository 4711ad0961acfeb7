-- purpose: Return the oids of the tables that a save writes to, as one number.
--
-- PL/pgSQL keeps the oids in a plan, and PostgreSQL discards the plan when one of the tables changes. A save has locked the
-- tables before, so it knows of every change. Two calls of to_regclass for each saved partition cost 80 us of a save of 64
-- partitions.
create or replace function {schema}.tables_saved() returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
    return ({partition}::oid::bigint << 32) # ({spill}::oid::bigint << 16) # {parked}::oid::bigint;
end
$$;
