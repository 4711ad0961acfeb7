-- purpose: an idle worker sleeps, and a publisher wakes it
-- breaking: no

-- The millisecond until which some worker sleeps, as a sequence that is not logged: setting it costs neither WAL nor a
-- transaction id, and it is no row to be locked. Workers set it before they sleep; who publishes while it lies ahead rings,
-- by NOTIFY. It has no value after a crash or a promotion, and then nobody rings. Before PostgreSQL 15 sequences cannot be
-- unlogged, and there is none. Programs that do not know it leave it alone.
do $$
begin
    if current_setting('server_version_num')::integer >= 150000 then
        execute format('create unlogged sequence %I.bell as bigint', {schema_name});
    end if;
end
$$;
