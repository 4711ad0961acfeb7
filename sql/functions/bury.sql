-- purpose: delete dead instances and free every partition whose owner is not in `instance`
--
-- known_dead: the caller knows that they are dead (its own children); otherwise only those whose lease is over by
-- the database's clock go. Deleting and freeing are statements of their own: in one statement a claim that commits
-- meanwhile would keep partitions for an instance that is gone. The orphans are locked first and looked at again
-- under the lock, because a lock that was waited for re-checks the partition row only, not `instance`.
-- The sweep runs also with no victims, so an orphan of any cause is freed by the next membership tick. It looks for them
-- by NOT IN, which is a hash whatever the statistics say: they stem from a time when nothing was owned, and with them 256
-- owners were compared with each of 200 instances.
--
-- With another table in the place of `instance` everybody would be gone: so it is asked whether it is ours.
--
-- Who was draining was told to end, and what ran then did not end it: its partitions are freed as if it had released
-- them, and what it had charged is uncharged. Starts that are older than its claim are of an owner that did die.
create or replace function {schema}.bury(victims uuid[], known_dead boolean)
returns table (buried uuid[], freed integer) language plpgsql
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    orphans {schema}.partition[];
    drained uuid[];
    names   text[];
    moment  timestamptz;
    wanted  bigint;
begin
    perform from {schema}.instance i where i.instance_id = any (victims) order by i.instance_id for update;
    moment := clock_timestamp();
    with gone as (
        delete from {schema}.instance i
         where i.instance_id = any (victims) and (known_dead or i.heartbeat_at + i.lease < moment)
        returning i.instance_id, i.draining, i.pid || ' on ' || i.node as name
    )
    select coalesce(array_agg(gone.instance_id), '{{}}'), array_agg(gone.instance_id) filter (where gone.draining),
           array_agg(gone.name)
      into buried, drained, names from gone;

    select array_agg(locked) into orphans
      from (select p.*
              from {schema}.partition p
             where p.owner is not null and p.owner not in (select i.instance_id from {schema}.instance i)
             order by p.subscription, p.partition
               for no key update) locked;
    if cardinality(buried) < cardinality(victims) then
        perform {schema}.all_written('instance', count(*), 0) from {schema}.instance i
          where i.instance_id = any (victims) and (known_dead or i.heartbeat_at + i.lease < moment);
    end if;

    -- What it has saved is told as its own, and not as that of the next owner.
    insert into {schema}.progress_note (subscription, partition, at, last_id, snapshot, epoch, instance, claimed_id, instance_id)
    select o.subscription, o.partition, o.saved_at, o.last_id, o.snapshot, o.epoch,
           coalesce(names[array_position(buried, o.owner)], o.owner::text), o.claimed_id, o.owner
      from unnest(orphans) as o
     where o.saved_at >= o.claimed_at
           and not exists (select from {schema}.instance i where i.instance_id = o.owner)
        on conflict do nothing;
    with orphan as (
        update {schema}.partition p
           set owner = null,
               suspect_until_id = case when p.owner = any (drained) then p.suspect_until_id
                                       else {schema}.drawn() end,
               saved_at = case when p.owner = any (drained) then clock_timestamp() else p.saved_at end
          from unnest(orphans) as o
         where p.subscription = o.subscription and p.partition = o.partition and p.owner is not null
               and not exists (select from {schema}.instance i where i.instance_id = p.owner)
        returning p.partition
    )
    select (select count(*)::integer from orphan), count(*) into freed, wanted
      from unnest(orphans) as o where not exists (select from {schema}.instance i where i.instance_id = o.owner);
    perform {schema}.all_written('partition', wanted, freed);
    if freed > 0 then
        perform {schema}.intact();
    end if;

    if drained is not null then
        update {schema}.parked k set attempts = k.attempts - 1, started_at = null
          from unnest(orphans) as o
         where o.owner = any (drained) and k.subscription = o.subscription and k.partition = o.partition
               and k.started_at >= o.claimed_at;
        perform {schema}.all_written('parked', count(*), 0)
           from unnest(orphans) as o
           join {schema}.parked k on k.subscription = o.subscription and k.partition = o.partition
                                     and k.started_at >= o.claimed_at
          where o.owner = any (drained);
    end if;
    return next;
end
$$;
