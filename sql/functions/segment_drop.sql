-- purpose: drop an empty segment whose last id was drawn; null, or what is in the way: "busy", "open", "filled"
--
-- It locks the whole log, so it waits for every publisher: those who stay are not waited for, and what is left takes an
-- instant. An id of it that was drawn and not written yet falls into the default segment.
create or replace function {schema}.segment_drop(lower bigint)
returns text language plpgsql security definer
set lock_timeout = '40ms' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    log   oid := to_regclass(format('%I.record', {schema_name}));
    found record;
begin
    select * into found from {schema}.segment_ranges() s where s.lower = segment_drop.lower;
    if found.segment is null or not pg_try_advisory_xact_lock(hashtext('partbox.purge'), hashtext({schema_name})) then
        return 'busy';
    elsif found.upper - 1 > coalesce(pg_sequence_last_value({sequence}), 0) then
        return 'open';
    elsif exists (select from {schema}.record r where r.partition >= 0 and r.id >= found.lower and r.id < found.upper) then
        return 'filled';
    elsif {schema}.segment_busy(log || array(select s.segment from {schema}.segment_ranges() s
                                             where s.lower is null or s.segment = found.segment)) then
        return 'busy';
    end if;

    execute format('lock table only %I.record in access exclusive mode', {schema_name});
    if exists (select from {schema}.record r where r.partition >= 0 and r.id >= found.lower and r.id < found.upper) then
        return 'filled';
    end if;
    execute format('drop table %I.%I', {schema_name}, found.name);
    return null;
end
$$;

revoke all on function {schema}.segment_drop(bigint) from public;
