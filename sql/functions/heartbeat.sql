-- purpose: renew instances, in order; what does not come back is gone
--
-- Locking and renewing are statements of their own: a row whose old version a claim holds for key share must not be
-- visited in that version again, because whoever waits there waits for this renewal's lock on the new one.
-- Who drains will end: that is never taken back, for its process may have said so after this was sent.
create or replace function {schema}.heartbeat(instances uuid[], draining boolean[])
returns setof uuid language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    wanted  bigint;
    renewed bigint;
begin
    perform from {schema}.instance i where i.instance_id = any (heartbeat.instances)
      order by i.instance_id for no key update;
    get diagnostics wanted = row_count;
    return query
    update {schema}.instance i set heartbeat_at = clock_timestamp(), draining = i.draining or sent.draining
      from unnest(heartbeat.instances, heartbeat.draining) as sent (instance_id, draining)
     where i.instance_id = sent.instance_id
    returning i.instance_id;
    get diagnostics renewed = row_count;
    if renewed < wanted then
        perform {schema}.all_written('instance', wanted, renewed);
    end if;
end
$$;
