-- purpose: dead records are ready again, with all their attempts, before every unstarted record of their key
--
-- The partition rows are locked first, in order, as for every write of parked rows, and their parked_version is raised:
-- the owners read their parked rows again within a tick. Only what is still dead is taken, so two operators at once, or
-- a list of ids that is a little old, do no harm.
--
-- A replay of many is a call for each chunk of about 500 records, each a transaction of its own, and may be killed
-- between two calls. Therefore a chunk holds *all* the chosen records of each key it touches (see dead_chunks): were
-- half of a key's records ready and the rest still dead, the owner would deliver that half and then live records, and
-- the other half, replayed later, would come after its successors. So a kill leaves whole keys replayed or untouched,
-- and a key's records, which the owner reads in one statement, run in id order with nothing between them.
--
-- A record without aggregate id blocks nothing, and what blocks nothing runs when it is due: it is due now. A due time
-- on a dead row says that its dead-letter hook is still owed; that is over with the replay.
--
-- What was imported as dead has its parked row before anybody has read its record, and an owner does not know of that
-- row. Delivered then, it would be dead again when the record is read. So it waits until the saved cursor has passed it.
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
