-- purpose: Return the name of a process in the history (its pid and node); return null if its row in `instance` is gone.
create or replace function {schema}.process_of(instance_id uuid) returns text language plpgsql stable
set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    return (select i.pid || ' on ' || i.node from {schema}.instance i where i.instance_id = process_of.instance_id);
end
$$;
