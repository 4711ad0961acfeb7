-- purpose: empty a segment that nobody needs, by TRUNCATE; `problem` is null, or "busy", or the first of segment_holds
--
-- The lock of purges comes first, so no subscription begins or is set back meanwhile. Who is parked dead there gets its
-- partition locked, as before every write of parked rows, so that it is not replayed meanwhile; its record is set aside
-- and put back. All in one transaction: whoever is killed in it has changed nothing. `retain` null: the records' age does
-- not matter. `freed` is in bytes.
--
-- The segment's lock keeps polls waiting, for they lock every segment. So whoever uses it for long is not waited for, all
-- is got ready before, and what was decided is asked again under the lock, in a new statement, only if anything has
-- changed. No further lock is waited for there (1 ms), nor a standby. Neither is a partition, for saves would wait.
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
    if {schema}.segment_state(found.segment, found.lower, found.upper) <> state then
        freed := 0;
        select h.reason into problem from {schema}.segment_holds(found.lower, found.upper, before) h limit 1;
        problem := coalesce(problem, 'busy');
        return;
    end if;
    execute format('truncate only %s', found.path);
    if dead is not null then
        -- To a connector that reads the WAL they would be new events: so nothing is written there row by row.
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
