-- purpose: make the segment of the ids from `lower` to below `upper`, all of which lie ahead; null, or what is in the way
--
-- "busy": somebody makes segments, or keeps the default one locked; "passed": an id in it may be drawn already; "taken":
-- a segment has some of these ids; "unproven": the default segment is large and nothing proves that it holds none.
--
-- In one transaction, so a kill leaves nothing half made. The table is made first; attaching it locks publishers out of
-- nothing but the default segment, and that only for an instant: it is small, or a constraint spares the search of it.
-- While that is locked nothing is waited for, neither for another lock (1 ms) nor for the disc: who publishes into it
-- would wait as well. What a crash then takes back is made again.
-- The ids must be far ahead: a statement that began to publish before, and draws one of them afterwards, fails.
-- It runs with the rights of the owner, whom only the roles of workers may ask: attaching takes owning the log.
create or replace function {schema}.segment_add(lower bigint, upper bigint)
returns text language plpgsql security definer
set lock_timeout = '25ms' set client_min_messages = warning
set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    small constant bigint := 2097152;
    name  text := 'record_' || segment_add.lower;
    net   oid;
begin
    if segment_add.lower < 1 or segment_add.upper <= segment_add.lower then
        raise exception 'partbox: a segment takes ids from at least 1 to more, not from % to %', lower, upper;
    elsif not {schema}.locked('segments') then
        return 'busy';
    elsif segment_add.lower <= {schema}.drawn() then
        return 'passed';
    elsif to_regclass(format('%I.%I', {schema_name}, name)) is not null
          or exists (select from {schema}.segment_ranges() s
                      where s.lower < segment_add.upper and s.upper > segment_add.lower) then
        return 'taken';
    end if;

    select s.segment into net from {schema}.segment_ranges() s where s.lower is null;
    if pg_relation_size(net) > small
       and not exists (select from {schema}.segment_proof() p
                        where p.valid and p.lower <= segment_add.lower and p.upper >= segment_add.upper) then
        return 'unproven';
    elsif {schema}.segment_busy(array[net]) then
        return 'busy';
    end if;

    perform set_config('synchronous_commit', 'off', true);
    execute format('create table %1$I.%2$I (like %1$I.record including all)', {schema_name}, name);
    execute format('alter table %I.%I owner to %I', {schema_name}, name,
                   (select pg_get_userbyid(c.relowner) from pg_class c
                     where c.oid = to_regclass(format('%I.record', {schema_name}))));
    execute format('lock table only %I.record in share update exclusive mode', {schema_name});
    execute format('lock table only %s in access exclusive mode', net::regclass);
    perform set_config('lock_timeout', '1ms', true);
    execute format('alter table %1$I.record attach partition %1$I.%2$I for values from (%3$s) to (%4$s)',
                   {schema_name}, name, segment_add.lower, segment_add.upper);
    return null;
end
$$;

revoke all on function {schema}.segment_add(bigint, bigint) from public;
