-- purpose: take an empty segment whose last id was drawn out of the log; null, or what is in the way: "busy", "open", "filled"
--
-- It locks the whole log, so it waits for every publisher: those who stay are not waited for, and what is left takes an
-- instant. Nothing is waited for while the log is locked, neither another lock (1 ms) nor the disc: what a crash takes
-- back is done again. So the table is not dropped here, which would wait for the disc, but marked for segment_drop.
-- An id of it that was drawn and not written yet falls into the default segment.
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
