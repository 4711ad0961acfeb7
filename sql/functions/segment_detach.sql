-- purpose: Take an empty segment out of the log. Return null, or the obstacle.
--
--   busy     another transaction holds the lock of purges, the segment does not exist, or a session keeps the log locked
--   open     the last id of the segment is not drawn yet
--   filled   the segment contains a record
--
-- The function locks the whole log, so it waits for every publisher. It gives up with "busy" if a session keeps the log
-- locked. All other sessions release the log within an instant. While the log is locked, the function waits neither for
-- another lock (1 ms) nor for the disc. If a crash undoes the change, the segment is detached again later. Dropping the table
-- would wait for the disc, so the function only marks the table for `segment_drop`.
--
-- An id of the segment may be drawn but not written yet. Its record goes into the default segment.
create or replace function {schema}.segment_detach(lower bigint)
returns text language plpgsql security definer
set lock_timeout = '25ms' set enable_seqscan = off set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    log   oid := to_regclass(format('%I.record', {schema_name}));
    found record;
    filled boolean;
begin
    if not {schema}.locked('purge') then
        return 'busy';
    end if;
    select * into found from {schema}.segment_ranges() s where s.lower = segment_detach.lower;
    if found.segment is null then
        return 'busy';
    elsif found.upper - 1 > {schema}.drawn() then
        return 'open';
    elsif exists (select from {schema}.record r where r.partition >= 0 and r.id >= found.lower and r.id < found.upper) then
        return 'filled';
    elsif {schema}.segment_busy(log || array(select s.segment from {schema}.segment_ranges() s
                                             where s.lower is null or s.segment = found.segment)) then
        return 'busy';
    end if;

    perform set_config('synchronous_commit', 'off', true);
    execute format('comment on table %I.%I is %L', {schema_name}, found.name, 'Detached from the log, to be dropped.');
    execute format('lock table only %I.record in access exclusive mode', {schema_name});
    perform set_config('lock_timeout', '1ms', true);
    execute format('select exists (select from %I.%I)', {schema_name}, found.name) into filled;
    if filled then
        return 'filled';
    end if;
    execute format('alter table %1$I.record detach partition %1$I.%2$I', {schema_name}, found.name);
    return null;
end
$$;

revoke all on function {schema}.segment_detach(bigint) from public;
