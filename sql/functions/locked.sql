-- purpose: lock what a row of `meta` stands for until the transaction ends; false if somebody else has it
--
-- So that one at a time purges ("purge"), or makes segments ("segments"). No advisory lock: anybody in the database could
-- hold one of those for as long as he likes. `shared`: with others who share it; whoever has it alone, which is nobody for
-- long, is waited for.
create or replace function {schema}.locked(what text, shared boolean default false)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if shared then
        perform from {schema}.meta m where m.key = 'lock ' || what for share;
    else
        perform from {schema}.meta m where m.key = 'lock ' || what for update skip locked;
    end if;
    if found then
        return true;
    elsif not exists (select from {schema}.meta m where m.key = 'lock ' || what) then
        raise exception 'partbox: table meta of schema % lacks the row %: run partbox migrate',
            {schema_name}, 'lock ' || what;
    end if;
    return false;
end
$$;
