-- purpose: Notify all listeners, unless the server's notification queue is filling up. Return whether they were notified.
--
-- Without the notification the listeners only notice later. So a plan, a command or an event must not fail because of it.
-- Once the queue is full, a transaction that has notified fails at its COMMIT.
create or replace function {schema}.tell(payload text)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if {queue_has_room} then
        perform pg_notify({channel}, payload), pg_notify({type_channels} || '*', payload);
        return true;
    end if;
    return false;
end
$$;
