-- purpose: a worker behind a transaction pooler notices that the server has crashed, or that another was promoted
-- breaking: no

-- Ids and transaction ids that were lost with a tail of the WAL are given out again, so what a worker remembers of them
-- must not outlive the server's life; and behind a pooler its connection may. An unlogged sequence does not: it is reset
-- by a crash, by the promotion of a standby and by a restore from a base backup, and stays over a clean restart. Workers
-- set it to the time where it has no value, each poll and each look returns it, and a save compares it.
-- Before PostgreSQL 15 sequences cannot be unlogged, and there is none. Programs that do not know it leave it alone.
do $$
begin
    if current_setting('server_version_num')::integer >= 150000 then
        execute format('create unlogged sequence %I.life as bigint', {schema_name});
    end if;
end
$$;
