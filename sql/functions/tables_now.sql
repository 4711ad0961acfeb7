-- purpose: Return the oids of the tables that hold events, and of the id sequence, by name, as JSON; the oid of a missing one is null.
create or replace function {schema}.tables_now() returns text language sql stable
set search_path = pg_catalog, pg_temp as $$
    select json_object_agg(name, to_regclass(format('%I.%I', {schema_name}, name))::oid::bigint order by name)::text
      from unnest(array['instance', 'meta', 'parked', 'partition', 'record', 'record_id_seq', 'spill', 'subscription']) as name
$$;
