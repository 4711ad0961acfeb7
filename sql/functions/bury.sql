-- purpose: Bury dead instances: delete their rows, and free every partition whose owner has no row in `instance`.
--
-- The function returns one row. `buried` has the ids of the deleted instances, and `freed` is the number of freed partitions.
--
-- `known_dead` means that the caller knows that all `victims` are dead, because they are its own children. Otherwise the
-- function deletes only instances whose lease is over by the database's clock.
--
-- The function frees partitions even if there are no victims. So the next membership tick frees every partition that has lost
-- its owner for any reason.
--
-- A process whose row says `draining` was asked to end, so no event of it caused its death. Its partitions are freed as if
-- the process had released them: no record becomes suspect, and the attempts that the process had charged are taken back.
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
    -- The deletion and the search for orphans are two statements. In one statement the search would not see a claim that
    -- commits meanwhile, and the claimed partitions would keep an owner that is gone.
    --
    -- The orphans are locked by the search and checked again below. After a wait for a row lock, PostgreSQL evaluates the
    -- condition again with the new version of the row in `partition`, but not with new rows of `instance`.
    --
    -- The search uses NOT IN because PostgreSQL runs NOT IN as a hash with any statistics. The statistics often date from a
    -- time when no partition had an owner. With such statistics another form compared each of 256 owners with each of 200
    -- instances.
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

    -- Note the saved progress of each dead owner under its own name. Otherwise the history would ascribe it to the next
    -- owner.
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
    -- If another table had the name of `instance`, all owners would seem to be gone. `intact` raises an error in that case.
    if freed > 0 then
        perform {schema}.intact();
    end if;

    -- A `started_at` that is older than `claimed_at` was written by an earlier owner. That owner did die, so its charge is
    -- kept.
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
