-- purpose: Delete (with dry_run: count) records older than `retain` seconds that every subscription has finished.
--
-- One call is one bounded step of a purge. The function returns no row while another transaction holds the lock of purges.
-- Otherwise `gone` is the number of records, and `onward` says where the next step begins: the partition and an id in it, or
-- null if the purge has examined everything. `place` is the `onward` of the previous step, and {{0, 0}} at first. A step that
-- begins there does not pass over the dead tuples of the earlier steps.
--
-- `onward` goes on with a number, and with the bound of each partition. Finding the bounds reads the cursors of all
-- subscriptions. The number changes with every row of `subscription`, and what lets cursors go back changes one. It changes
-- with the server's incarnation too, because a crash may lose saves that did not wait for the disk, and behind a pooler a purge
-- goes on after it. So a step that finds the same number uses the bounds of the step before, which are at most too low: cursors
-- have only gone forward. Where the incarnation is not known, as before a worker sets it, each step finds the bounds itself.
--
-- A record can be deleted if its id is at most least(floor_id, last_id) of every subscription, no aggregate of its partition
-- has records from a lower id on that wait in the log without rows (table `spill`), and no subscription has parked the record,
-- except as discarded. A spill begins above every cursor that is saved, so a bound that was found before it is too low. Without a subscription the id does not matter. Such a record can always be deleted later,
-- too: cursors go back, and subscriptions begin, only under the same lock, and nothing is parked behind a cursor. A dry run
-- also counts the records of dead rows that `purge_dead` would delete first.
--
-- The floor alone would not do. It only says that no record below it will still become visible, and it lies ahead of
-- the last id of a subscription that is slow or paused, which has not read the records in between.
--
-- A full segment is emptied whole, by `segment_empty`, once its newest record has expired. Until a quarter of the retention
-- has passed since its oldest record expired, this function deletes no record in the segment or above it.
--
-- While an archive is kept, `archived_id` in `meta` is the id up to which everything is archived. No record above that id is
-- deleted.
--
-- In a partition the times of records rise with the ids, with few exceptions. Therefore a partition is finished when a
-- stretch ends in a young record. The exceptions do no harm, because only old records are deleted. The planner settings are
-- needed because statistics lag behind the log.
create or replace function {schema}.purge_records(
    retain float8, retain_dead float8, batch integer, place bigint[], dry_run boolean
) returns table (gone bigint, onward bigint[]) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    stretch constant integer := 100;
    looks   constant integer := least(10000, 20 * batch);
    before      timestamptz := clock_timestamp() - least(retain, 36500 * 86400.0) * interval '1 second';
    dead_before timestamptz := clock_timestamp() - least(retain_dead, 36500 * 86400.0) * interval '1 second';
    number bigint;
    bounds bigint[];
    names  text[];
    spared bigint;
    kept   bigint;
    part   bigint := place[1];
    after  bigint := place[2];
    looked integer := 0;
    bound  bigint;
    seen   integer;
    upto   bigint;
    young  boolean;
    cut    boolean;
    ids    bigint[];
    newest bigint := 0;
    deleted bigint;
begin
    if not dry_run then
        if not {schema}.locked('purge') then
            return;
        end if;
        perform set_config('synchronous_commit', 'off', true);
    end if;
    gone := 0;
    select coalesce(bit_xor(hashtextextended(s.name, s.xmin::text::bigint)), 0)
           # coalesce(pg_sequence_last_value(to_regclass(format('%I.life', {schema_name}))), (random() * 1e18)::bigint)
      into number
      from {schema}.subscription s;
    bounds := place[4:];
    if place[3] is distinct from number then
        select array_agg(case when c.count is null and s.count > 0 or c.count < s.count then 0
                              else least(coalesce(c.passed, 9223372036854775807), w.passed) end order by each)
          into bounds
          from (select count(*) from {schema}.subscription s) s
         cross join generate_series(0, 255) as each
          left join (select p.partition, count(*), min(p.passed) as passed
                       from {schema}.subscription s
                      cross join lateral (
                            -- Without the offset, old statistics make the planner read all cursors for each subscription.
                            select p.partition, least(p.floor_id, p.last_id) as passed
                              from {schema}.partition p where p.subscription = s.name offset 0) p
                      group by p.partition) c on c.partition = each
          left join (select w.partition, min(w.from_id) - 1 as passed
                       from {schema}.spill w
                       join {schema}.subscription s on s.name = w.subscription
                      group by w.partition) w on w.partition = each;
    end if;
    select array_agg(k.subscription) into names
      from ({first_parked}) k
      join {schema}.subscription s on s.name = k.subscription
     where k.record_id <= (select max(passed) from unnest(bounds) as passed);
    select m.value::bigint into kept from {schema}.meta m where m.key = 'archived_id';
    select coalesce(min(s.lower), 9223372036854775807) into spared
      from {schema}.segment_ranges() s
     cross join lateral (select r.created_at from {schema}.record r
                          where r.partition >= 0 and r.id >= s.lower and r.id < s.upper order by r.id limit 1) oldest
     where s.upper - 1 <= {schema}.drawn()
           and oldest.created_at >= clock_timestamp() - least(retain * 1.25, 36500 * 86400.0) * interval '1 second';

    while part < 256 and gone < batch and looked < looks loop
        bound := least(bounds[part + 1], spared - 1, kept);

        select count(*), max(r.id), coalesce(max(r.id) filter (where r.created_at >= before) = max(r.id), false),
               array_agg(r.id order by r.id) filter (where r.created_at < before and not exists (
                   select from {schema}.parked k
                    where k.subscription = any (names) and k.record_id = r.id and k.state <> 'discarded'
                          and not (dry_run and {schema}.expired_dead(k, dead_before))))
          into seen, upto, young, ids
          from (select r.id, r.created_at
                  from {schema}.record r
                 where r.partition = part and r.id > after and r.id <= bound
                 order by r.id limit stretch) r;
        cut := cardinality(ids) > batch - gone;
        ids := ids[1:batch - gone];

        if ids is not null then
            if not dry_run then
                delete from {schema}.record r where r.partition = part and r.id = any (ids);
                get diagnostics deleted = row_count;
                perform {schema}.all_written('record', cardinality(ids), deleted);
                newest := greatest(newest, (select max(id) from unnest(ids) as id));
            end if;
            gone := gone + cardinality(ids);
        end if;
        looked := looked + seen;
        if cut then
            after := ids[cardinality(ids)];
        elsif young or seen < stretch then
            part := part + 1;
            after := 0;
        else
            after := upto;
        end if;
    end loop;

    if newest > 0 then
        insert into {schema}.meta as m (key, value) values ('purged_id', newest)
            on conflict (key) do update set value = greatest(m.value::bigint, excluded.value::bigint);
        perform {schema}.all_written('meta', 1, found::integer);
    end if;
    perform {schema}.intact();
    onward := case when part < 256 then array[part, after, number] || bounds end;
    return next;
end
$$;
