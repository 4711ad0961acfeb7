-- purpose: set a paused subscription that nobody owns anything of back: what follows from an id or a time comes again
--
-- Why it is enough to lower last_id. With cursor (S, L, F) a record is consumed if its id is at most L and its xid is
-- visible in S. Let X be the first id that is to come again, and L' = least(L, X - 1):
--   * from X on every id is above L', so every record there is *new* and is read, whatever S says, in the order of ids;
--   * what is not above L' is judged as before, for S has not changed: what is visible in S stays consumed and does not
--     come again, what is not had not arrived at S and still comes *late*;
--   * F says that nothing up to it will *become* visible any more. That is a fact about transactions, not about what was
--     read, so it stays true; the search for late records begins at least(F, L').
-- A later S would hide the late ones, an earlier one would bring consumed ones again, a lower F only costs a longer search.
-- Parked rows from X on are deleted, or their records would count as consumed when they are read again; those below X
-- stay, and go on blocking their keys. The raised epoch fences whoever still believes to own a partition.
--
-- With a time, X is for each partition the first id that was created then or later; a partition without any stays.
-- The lock that purges hold is waited for first, and everything is read in new statements after it: no batch of
-- a purge can have looked at the cursor as it was and delete what it has just been set back to.
--
-- `problem` is null when it is done; else what is in the way: "missing", "resumed", "owners", "purged" (then
-- `purged_id` says how far). `rewound` is how many partitions were set back. `resume` lets the subscription go on at the
-- same moment, so that a command that is killed cannot leave it paused.
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
        delete from {schema}.parked k
         using first
         where k.subscription = subscription_replay.subscription
               and k.partition = first.partition and k.record_id >= first.id
        returning true
    ), lowered as (
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

    update {schema}.subscription s set paused_at = null
     where s.name = subscription_replay.subscription and subscription_replay.resume;
    perform {schema}.all_written('subscription', resume::integer, found::integer);
    return next;
end
$$;
