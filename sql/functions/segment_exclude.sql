-- purpose: Keep the ids from `lower` to below `upper` out of the default segment by a constraint; drop the constraint if they are null.
--
-- The function returns null, or "busy" or "passed" as `segment_add` does.
--
-- While the constraint exists and no segment takes the ids, a transaction that draws one of them fails. So the ids must lie
-- very far ahead, and the search and the new segment must follow at once. If a kill leaves the constraint behind, the next
-- maintenance that finds it drops it. The default segment is locked here for an instant only. `segment_prove` searches its
-- rows later.
create or replace function {schema}.segment_exclude(lower bigint, upper bigint)
returns text language plpgsql security definer
set lock_timeout = '25ms' set client_min_messages = warning
set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    net record;
begin
    if not {schema}.locked('segments') then
        return 'busy';
    elsif segment_exclude.lower <= {schema}.drawn() then
        return 'passed';
    end if;
    select * into net from {schema}.segment_ranges() s where s.lower is null;
    if {schema}.segment_busy(array[net.segment]) then
        return 'busy';
    end if;
    perform set_config('synchronous_commit', 'off', true);
    execute format('lock table only %I.%I in access exclusive mode', {schema_name}, net.name);
    perform set_config('lock_timeout', '1ms', true);
    execute format('alter table %I.%I drop constraint if exists segment_proof', {schema_name}, net.name);
    if segment_exclude.lower is not null then
        execute format('alter table %I.%I add constraint segment_proof check (id < %s or id >= %s) not valid',
                       {schema_name}, net.name, segment_exclude.lower, segment_exclude.upper);
    end if;
    return null;
end
$$;

revoke all on function {schema}.segment_exclude(bigint, bigint) from public;
