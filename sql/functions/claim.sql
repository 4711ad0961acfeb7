-- purpose: Claim the free partitions of a subscription that are assigned to the process `me`, and return their rows.
--
-- The function returns no row if the process has no row in `instance`. A process of an earlier version, which does not know the table
-- `spill`, gets no partition with a spill: it would deliver events before those that wait in the log.
create or replace function {schema}.claim(subscription text, me uuid)
returns setof {schema}.partition language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    free    smallint[];
    claimed bigint;
    knows   boolean;
begin
    -- Lock the row of the instance first. A bury that deletes the row then waits for this claim, or this claim finds the row
    -- gone. Without the lock, a buried instance could claim partitions after the bury has searched for orphans. The partitions
    -- would then belong to a dead owner.
    select i.reads_spills into knows from {schema}.instance i where i.instance_id = claim.me for key share;
    if not found then
        return;
    end if;
    perform {schema}.intact();
    perform {schema}.all_cursors(claim.subscription);
    select array_agg(locked.partition) into free
      from (select p.partition
              from {schema}.partition p
             where p.subscription = claim.subscription and p.assignee = claim.me and p.owner is null
                   and (knows or not exists (select from {schema}.spill w
                                              where w.subscription = p.subscription and w.partition = p.partition))
             order by p.partition
               for no key update) locked;
    -- The epoch is at least the time in milliseconds. So an epoch never repeats, even if a crash of the database loses the
    -- newest transactions, and with them the last epoch.
    return query
    update {schema}.partition p
       set owner = claim.me, claimed_at = clock_timestamp(), claimed_id = p.last_id,
           epoch = greatest(p.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
     where p.subscription = claim.subscription and p.partition = any (free)
           and p.owner is null and p.assignee = claim.me
    returning p.*;
    get diagnostics claimed = row_count;
    perform {schema}.all_written('partition', cardinality(free), claimed);
end
$$;
