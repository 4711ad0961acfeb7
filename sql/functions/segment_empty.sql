-- purpose: Empty a segment that nobody needs, by TRUNCATE. Return the obstacle, or null, and the number of bytes freed.
--
-- `problem` is null on success. Otherwise it is "busy" or the first reason of `segment_holds`. If `retain` (in seconds) is
-- null, the age of the records does not matter. The function is one transaction, so a kill changes nothing.
--
-- The lock of purges comes first, so no subscription begins or is set back meanwhile. Dead records are set aside and put
-- back. Their partition rows are locked, as before every write of parked rows, so that no record is replayed meanwhile.
--
-- The lock of the segment makes polls wait, because a poll locks every segment. Therefore the function does not wait for a
-- session that uses the segment for long, and it prepares everything before it takes the lock. Under the lock it waits
-- neither for another lock (1 ms) nor for a standby.
create or replace function {schema}.segment_empty(lower bigint, retain float8, out problem text, out freed bigint)
language plpgsql security definer
set lock_timeout = '25ms' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    before  timestamptz := case when retain is not null then
                               clock_timestamp() - least(retain, 36500 * 86400.0) * interval '1 second' end;
    decoded boolean := current_setting('wal_level') = 'logical';
    found   record;
    state   text;
    names   text[];
    dead    {schema}.record[];
    newest  bigint;
    kept    bigint;
begin
    freed := 0;
    if not {schema}.locked('purge') then
        problem := 'busy';
        return;
    end if;
    select s.*, format('%I.%I', {schema_name}, s.name) as path into found
      from {schema}.segment_ranges() s where s.lower = segment_empty.lower;
    if found.segment is null then
        problem := 'busy';
        return;
    end if;
    state := {schema}.segment_state(found.segment, found.lower, found.upper);
    select h.reason into problem from {schema}.segment_holds(found.lower, found.upper, before) h limit 1;
    if problem is null and {schema}.segment_busy(array[found.segment]) then
        problem := 'busy';
    end if;
    if problem is not null then
        return;
    end if;

    freed := pg_total_relation_size(found.segment);
    select array_agg(s.name) into names from {schema}.subscription s;
    select r.id into newest
      from {schema}.record r
     where r.partition >= 0 and r.id >= found.lower and r.id < found.upper
     order by r.id desc limit 1;
    -- The function does not wait for a partition row (NOWAIT), because saves would wait for the function meanwhile.
    perform from {schema}.partition p
      where (p.subscription, p.partition) in (
                select k.subscription, k.partition from {schema}.parked k
                 where k.subscription = any (names) and k.record_id >= found.lower and k.record_id < found.upper)
      order by p.subscription, p.partition
        for no key update nowait;
    select array_agg(r) into dead
      from {schema}.record r
     where r.id >= found.lower and r.id < found.upper
           and (r.partition, r.id) in (select k.partition, k.record_id from {schema}.parked k
                                        where k.subscription = any (names) and k.state <> 'discarded'
                                              and k.record_id >= found.lower and k.record_id < found.upper);

    perform set_config('synchronous_commit', 'off', true);
    execute format('lock table only %s in access exclusive mode', found.path);
    perform set_config('lock_timeout', '1ms', true);
    -- The decision is made again, in a new statement, only if something has changed.
    if {schema}.segment_state(found.segment, found.lower, found.upper) <> state then
        freed := 0;
        select h.reason into problem from {schema}.segment_holds(found.lower, found.upper, before) h limit 1;
        problem := coalesce(problem, 'busy');
        return;
    end if;
    execute format('truncate only %s', found.path);
    if dead is not null then
        -- A connector that reads the WAL would take these records for new events. While the table is unlogged, no single row
        -- is written to the WAL.
        if decoded then
            execute format('alter table %s set unlogged', found.path);
        end if;
        insert into {schema}.record select d.* from unnest(dead) as d;
        get diagnostics kept = row_count;
        perform {schema}.all_written('record', cardinality(dead), kept);
        if decoded then
            execute format('alter table %s set logged', found.path);
        end if;
        freed := greatest(freed - pg_total_relation_size(found.segment), 0);
    end if;
    insert into {schema}.meta as m (key, value) values ('purged_id', newest)
        on conflict (key) do update set value = greatest(m.value::bigint, excluded.value::bigint);
    get diagnostics kept = row_count;
    perform {schema}.all_written('meta', 1, kept);
    perform {schema}.intact();
end
$$;

revoke all on function {schema}.segment_empty(bigint, float8) from public;
