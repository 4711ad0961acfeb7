-- purpose: take the partitions that are assigned to me and have no owner
--
-- First my own instance row, for key share: a bury that deletes it waits for this claim or is seen by it; without
-- that a buried instance could claim after the bury has looked, and the partition would belong to nobody alive.
-- The epoch never repeats, also not after a crash of the database lost the tail that held the last one.
create or replace function {schema}.claim(subscription text, me uuid)
returns setof {schema}.partition language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    free    smallint[];
    claimed bigint;
begin
    perform from {schema}.instance i where i.instance_id = claim.me for key share;
    if not found then
        return;
    end if;
    perform {schema}.intact();
    perform {schema}.all_cursors(claim.subscription);
    select array_agg(locked.partition) into free
      from (select p.partition
              from {schema}.partition p
             where p.subscription = claim.subscription and p.assignee = claim.me and p.owner is null
             order by p.partition
               for no key update) locked;
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
