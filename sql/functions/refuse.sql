-- purpose: Raise an error within a statement, which undoes everything that the statement has written.
create or replace function {schema}.refuse(problem text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'partbox: %', problem using errcode = 'object_not_in_prerequisite_state';
end
$$;
