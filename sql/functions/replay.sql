-- purpose: Make dead records ready again, with all attempts, before the unstarted records of their aggregate. Return their number.
--
-- The function locks the partition rows first, in order, as every write of parked rows does. Then the function raises
-- `parked_version`, so that the owners read their parked rows again within a tick. Only records are chosen that are still
-- dead, so two operators at once, or an outdated list of ids, do no harm.
--
-- The replay of many records makes a call for each chunk of about 500 records. Each call is a transaction of its own, and the
-- program may be killed between two calls. Therefore a chunk contains *all* the chosen records of each aggregate in it (see
-- the query `dead_chunks`). If half of the records of an aggregate were ready and the rest still dead, the owner would
-- deliver that half and then live records, and the other half, replayed later, would come after its successors. So a kill
-- leaves each aggregate either wholly replayed or untouched. The owner reads the records of an aggregate in one statement, so
-- they run in the order of their ids with no other record between them.
--
-- A row that blocks nothing, such as the row of a record without an aggregate id, runs when it is due. So it becomes due now.
-- The `due_at` of a dead row means that its dead-letter hook has not been called yet. After the replay the hook is no longer
-- called.
create or replace function {schema}.replay(subscription text, record_ids bigint[])
returns integer language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    changed smallint[];
    wanted  bigint;
begin
    perform from {schema}.partition p
      where p.subscription = replay.subscription
            and p.partition in (select k.partition from {schema}.parked k
                                 where k.subscription = replay.subscription and k.record_id = any (replay.record_ids))
      order by p.partition
        for no key update;

    -- An import parks a dead record before anybody reads the record, and the owner does not know of that row. If the record
    -- were delivered then, it would be dead again when it is read. So such a record (its `available_at` is the greatest
    -- possible time) is not chosen until the saved cursor has passed it.
    with chosen as materialized (
        select k.record_id
          from {schema}.parked k
         where k.subscription = replay.subscription and k.record_id = any (replay.record_ids) and k.state = 'dead'
               and not exists (select from {schema}.partition p
                                 join {schema}.record r on r.partition = p.partition and r.id = k.record_id
                                where p.subscription = k.subscription and p.partition = k.partition
                                      and k.record_id > least(p.floor_id, p.last_id)
                                      and r.available_at = '294276-12-31 23:59:59.999999Z'
                                      and (k.record_id > p.last_id or not pg_visible_in_snapshot(r.xid, p.snapshot)))
    ), replayed as (
        update {schema}.parked k
           set state = 'ready', blocks = k.aggregate_id is not null, attempts = 0, parked_at = clock_timestamp(),
               due_at = case when k.aggregate_id is null then clock_timestamp() end, started_at = null
          from chosen
         where k.subscription = replay.subscription and k.record_id = chosen.record_id
        returning k.partition, k.record_id
    ), told as (
        insert into {schema}.attempt (subscription, record_id, attempt, outcome)
        select replay.subscription, replayed.record_id, 0, 'replayed' from replayed
            on conflict do nothing
    )
    select coalesce(array_agg(replayed.partition), '{{}}'), (select count(*) from chosen) into changed, wanted from replayed;

    perform {schema}.all_written('parked', wanted, cardinality(changed));
    perform {schema}.attempts_kept(replay.subscription, replay.record_ids);
    perform {schema}.reread(replay.subscription, changed);
    return cardinality(changed);
end
$$;
