-- purpose: Lock a row of `meta` until the transaction ends; return false if another transaction has locked it.
--
-- The key of the row is 'lock ' and then the value of `what`. The row represents a task that only one transaction may do at a
-- time: "purge" for purges, "segments" for making segments. The lock is no advisory lock, because anybody in the database
-- could hold an advisory lock for as long as they like.
--
-- With `shared` the lock can be held by several transactions. The call then waits for a transaction that holds the lock
-- alone, which takes only a moment.
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
