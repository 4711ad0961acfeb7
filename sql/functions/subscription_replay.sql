-- purpose: Set back a paused subscription without owners, so that records from an id or a time on are delivered again.
--
-- `problem` is null on success, and otherwise the obstacle: "missing", "resumed", "owners" or "purged". With "purged",
-- `purged_id` is the greatest deleted id. `rewound` is the number of partitions that were set back. `resume` lets the
-- subscription go on at the same moment, so a command that is killed cannot leave it paused.
--
-- It is enough to lower last_id. With the cursor (S, L, F) a record is consumed if its id is at most L and its xid is visible
-- in S. Let X be the first id that is delivered again, and L' = least(L, X - 1):
--
--   * Every id from X on is above L'. So every record from X on is *new*, and is read in the order of ids, with any S.
--   * A record up to L' is judged as before, because S is the same. If it is visible in S, the record remains consumed and is not delivered
--     again. If it is not visible in S, it had not arrived at S and still comes *late*.
--   * F states that no record up to F will *become* visible any more. That is a fact about transactions, not about reading, so F remains
--     true. The search for late records begins at the id least(F, L').
--
-- A later S would hide the late records, an earlier S would repeat consumed records, and a lower F would only make the search
-- longer.
--
-- With a time, X is for each partition the first id that was created then or later. A partition without such a record is not
-- changed.
create or replace function {schema}.subscription_replay(
    subscription text, from_id bigint, from_time timestamptz, resume boolean
) returns table (problem text, purged_id bigint, rewound integer)
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    going boolean;
    wanted  bigint[];
    written bigint[];
begin
    -- Wait for the lock of purges first, and read everything in new statements after it. Otherwise a step of a purge could
    -- read the cursor before it is set back, and delete records that are needed afterwards.
    perform {schema}.locked('purge', true);

    select s.paused_at is null into going
      from {schema}.subscription s where s.name = subscription_replay.subscription for no key update;
    perform from {schema}.partition p
      where p.subscription = subscription_replay.subscription order by p.partition for no key update;

    purged_id := {schema}.subscription_purged(subscription_replay.from_id, subscription_replay.from_time);
    problem := case when going is null then 'missing'
                    when going then 'resumed'
                    when exists (select from {schema}.partition p
                                  where p.subscription = subscription_replay.subscription and p.owner is not null)
                    then 'owners'
                    when purged_id is not null then 'purged' end;
    if problem is not null then
        return next;
        return;
    end if;

    with first as materialized (
        select number::smallint as partition, subscription_replay.from_id as id
          from generate_series(0, 255) as number
         where subscription_replay.from_id is not null
        union all
        select r.partition, min(r.id)
          from {schema}.record r
         where r.created_at >= subscription_replay.from_time
         group by r.partition
    ), unparked as (
        -- Delete the parked rows from X on, because their records would otherwise count as consumed when they are read again.
        -- The rows below X are kept and go on blocking their aggregates.
        delete from {schema}.parked k
         using first
         where k.subscription = subscription_replay.subscription
               and k.partition = first.partition and k.record_id >= first.id
        returning true
    ), unspilled as (
        -- A spill that begins at X or later goes with them. One that began before X goes on: it has records below X in the log.
        delete from {schema}.spill w
         using first
         where w.subscription = subscription_replay.subscription and w.partition = first.partition and w.from_id >= first.id
    ), lowered as (
        -- The raised epoch fences a process that still takes itself for the owner of a partition.
        update {schema}.partition p
           set last_id = least(p.last_id, first.id - 1), parked_version = p.parked_version + 1,
               epoch = greatest(p.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
          from first
          join {schema}.partition before
            on before.subscription = subscription_replay.subscription and before.partition = first.partition
         where p.subscription = subscription_replay.subscription and p.partition = first.partition
        returning before.last_id >= first.id as back
    )
    select count(*) filter (where lowered.back), array[count(*), (select count(*) from unparked)],
           array[(select count(*) from first),
                 (select count(*) from first
                    join {schema}.parked k on k.subscription = subscription_replay.subscription
                                              and k.partition = first.partition and k.record_id >= first.id)]
      into rewound, written, wanted from lowered;
    perform {schema}.all_written('partition', wanted[1], written[1]);
    perform {schema}.all_written('parked', wanted[2], written[2]);

    -- The row is written in any case, so that a purge finds its bounds again.
    update {schema}.subscription s set paused_at = case when not subscription_replay.resume then s.paused_at end
     where s.name = subscription_replay.subscription;
    perform {schema}.all_written('subscription', 1, found::integer);
    return next;
end
$$;
