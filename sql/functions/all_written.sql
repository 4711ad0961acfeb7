-- purpose: Return true if at least `wanted` rows were written; otherwise raise an error, which undoes the writes.
--
-- A trigger or rule of a table may keep rows unchanged without an error. Therefore each caller counts the rows that it has
-- written.
create or replace function {schema}.all_written(in_table text, wanted bigint, written bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if written < wanted then
        perform {schema}.refuse(format('a trigger or rule keeps rows of table %s as they are: nothing was changed', in_table));
    end if;
    return true;
end
$$;
