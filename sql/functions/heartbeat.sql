-- purpose: Renew the leases of instances, and return the ids of the renewed ones. An instance that is missing in the result has no row.
create or replace function {schema}.heartbeat(instances uuid[], draining boolean[])
returns setof uuid language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    wanted  bigint;
    renewed bigint;
begin
    -- Lock the rows first, in the order of their ids, by a statement of its own. A claim may hold the old version of a row
    -- for key share. The update must not visit that old version again, because a transaction that waits there waits for the
    -- lock that this renewal has on the new version.
    perform from {schema}.instance i where i.instance_id = any (heartbeat.instances)
      order by i.instance_id for no key update;
    get diagnostics wanted = row_count;
    -- `draining` is never taken back, because the process may have set it after this heartbeat was sent.
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
