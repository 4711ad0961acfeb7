-- purpose: notify all who listen, unless the server's notification queue is filling up; whether it did
--
-- What is told is delivered without it too, later: so a plan, a command or an event must not fail for it. Once the queue is
-- full a transaction that has notified fails at its COMMIT.
create or replace function {schema}.tell(payload text)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if {queue_has_room} then
        perform pg_notify({channel}, payload);
        return true;
    end if;
    return false;
end
$$;
