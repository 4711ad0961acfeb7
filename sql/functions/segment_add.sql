-- purpose: Create the segment for the ids from `lower` to below `upper`. Return null, or the obstacle.
--
--   busy       another transaction makes segments or keeps the default segment locked
--   passed     an id of the range may be drawn already
--   taken      a segment has some of the ids
--   unproven   the default segment is large, and no constraint proves that it has none of the ids
--
-- The function is one transaction, so a kill leaves nothing half made. The ids must be far ahead, because a statement fails
-- if it began to publish before and draws one of the ids afterwards.
--
-- Only the owner of the log can attach a segment. Therefore the function runs with the rights of the owner, and only the
-- roles of workers may call it.
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

    -- The table is created before anything is locked. Attaching it locks publishers out of the default segment only, and only
    -- for an instant, because that segment is small or a constraint spares the search of it. During that lock the function
    -- waits neither for another lock (1 ms) nor for the disc, because a publisher into the default segment would wait as
    -- well. If a crash undoes the change, the segment is made again later.
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
