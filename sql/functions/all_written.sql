-- purpose: true if all rows were written that were to be; else an error: a trigger or rule keeps some as they are, silently
create or replace function {schema}.all_written(in_table text, wanted bigint, written bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if written < wanted then
        perform {schema}.refuse(format('a trigger or rule keeps rows of table %s as they are: nothing was changed', in_table));
    end if;
    return true;
end
$$;
