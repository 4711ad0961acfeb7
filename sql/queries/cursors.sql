-- name: mine
-- Other queries contain this query. It returns the partitions that this instance owns or is assigned. An index finds each of them,
-- however many other partitions there are.
    select p.partition, coalesce(p.assignee = %(me)s::uuid, false) as assigned, coalesce(p.owner = %(me)s::uuid, false) as owned,
           p.owner is null as free, p.epoch, p.parked_version
      from (select * from {schema}.partition a where a.subscription = %(subscription)s and a.assignee = %(me)s::uuid
            union all
            select * from {schema}.partition o
             where o.subscription = %(subscription)s and o.owner = %(me)s::uuid and o.assignee is distinct from %(me)s::uuid) as p

-- name: limited
-- Other queries contain this query. It returns the limits that operators have set for handlers of the subscription, and what they have
-- paused as limits of 0. Mostly there are none.
    select 'handler' as kind, l.handler, '' as value, l.rate, l.at_once
      from {schema}.handler_limit l where l.subscription = %(subscription)s
    union all
    select p.kind, p.handler, p.value, 0, null from {schema}.pause p where p.subscription = %(subscription)s

-- name: calm
-- The query is an idle check that makes no fence, for a worker that knows the state already. It returns the milliseconds by which the
-- bell's flag lies ahead; true if nothing has changed (see the function `is_calm`); the server's incarnation; and the oids of the log (see
-- `log_named`). It takes a third of the time of a tick. A worker runs a tick if the second column is false.
select {flag_ahead}, {schema}.is_calm(%(subscription)s, %(me)s::uuid, %(known)s::bigint, %(drawn)s::bigint),
       pg_sequence_last_value(%(life)s::oid::regclass), {log_named}

-- name: tick
-- The query is an idle check (see `fence`) and returns more in the same round trip: a digest of this instance's partitions and of limits
-- (see the function `digest`), whether the digest is `known`, two arrays of due times, the partitions, and the limits. The partitions and
-- the limits have one array for each column, which is null if the digest is `known`. That is nearly always so, because the 256 partitions
-- rarely change between two ticks.
-- The first array of due times has the partitions that this instance owns and that have a parked row with a due time. The second one has
-- the seconds until the first of these rows is due. A publisher may have given any time, and infinity cannot be subtracted, so times are
-- capped. The recursive query searches the index once for each partition that has such a row. Few partitions have one.
with recursive look as materialized (
{fence}
), mine as materialized (
{mine}
), digest as materialized (
    select {schema}.digest(%(subscription)s, %(me)s::uuid) as of_mine
), first_due as (
    (select k.partition, k.due_at
       from {schema}.parked k
      where k.subscription = %(subscription)s and k.due_at is not null
      order by k.partition, k.due_at limit 1)
    union all
    select next.partition, next.due_at
      from first_due
     cross join lateral (
        select k.partition, k.due_at
          from {schema}.parked k
         where k.subscription = %(subscription)s and k.partition > first_due.partition and k.due_at is not null
         order by k.partition, k.due_at limit 1) as next
)
select look.*, digest.of_mine, digest.of_mine = %(known)s::bigint, due.*, seen.*, limited.*
  from look, digest,
       (select array_agg(f.partition), array_agg(extract(epoch from least(f.due_at, '9999-12-30 00:00Z') - clock_timestamp())::float8)
          from first_due f
          join mine on mine.partition = f.partition and mine.owned) as due,
       (select array_agg(partition), array_agg(assigned), array_agg(owned), array_agg(free), array_agg(epoch),
               array_agg(parked_version)
          from mine
         where (select of_mine from digest) is distinct from %(known)s::bigint) as seen,
       (select array_agg(kind), array_agg(handler), array_agg(value), array_agg(rate), array_agg(at_once)
          from ({limited}) as l
         where (select of_mine from digest) is distinct from %(known)s::bigint) as limited

-- name: claim
-- The query claims the free partitions that are assigned to this instance; see the function `claim`. The last column is the number of
-- seconds between the last save and this claim, and null if the last owner died.
select partition, epoch, snapshot::text, last_id, floor_id, parked_version, suspect_until_id,
       case when suspect_until_id is null then extract(epoch from claimed_at - saved_at)::float8 end
  from {schema}.claim(%(subscription)s, %(me)s::uuid)

-- name: take_up
-- The statement returns those of the given partitions that this instance owns under the given epochs, with their saved cursors, and gives
-- each a new epoch. A save or a take-up that an earlier session of this instance has sent may arrive later. Such a statement has the old
-- epochs, so it changes nothing.
with mine as materialized (
    select p.partition
      from {schema}.partition p
      join unnest(%(partitions)s::smallint[], %(epochs)s::bigint[]) as seen (partition, epoch)
        on p.partition = seen.partition and p.epoch = seen.epoch
     where p.subscription = %(subscription)s and p.owner = %(me)s::uuid
     order by p.partition
       for no key update of p
), taken as (
    update {schema}.partition p
       set epoch = greatest(p.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
      from mine
     where p.subscription = %(subscription)s and p.partition = mine.partition and p.owner = %(me)s::uuid
    returning p.partition, p.epoch, p.snapshot::text, p.last_id, p.floor_id, p.parked_version, p.suspect_until_id
)
select taken.* from taken
 where (select {schema}.all_written('partition', (select count(*) from mine), count(*)) from taken)

-- name: save
-- The query is the fenced write of an owner; see the function `save`. It returns one row: the partitions that this instance still owns;
-- the seconds that the server took, which a busy client cannot measure; and whether the server is in the incarnation that the session
-- began in. In another incarnation, `me` becomes null, which owns nothing, so nothing is written. The query is an aggregate, so its third
-- column is computed once and after the save, with the tables locked. There it compares the tables of the save with those that the
-- session began with, and fails if they differ.
select array_agg(saved.partition) filter (where saved.partition is not null),
       extract(epoch from clock_timestamp() - statement_timestamp())::float8,
       case when coalesce({schema}.tables_saved() = %(tables)s::bigint, true) then bool_and(life.same)
            else {schema}.refuse('another table has the place of `partition` or `parked`: nothing was saved') end
  from (select coalesce(pg_sequence_last_value(%(life)s::oid::regclass) = %(value)s::bigint, %(life)s::oid is null) as same
         offset 0) as life
  left join lateral {schema}.save(
       %(subscription)s, case when life.same then %(me)s::uuid end, %(partitions)s::smallint[], %(epochs)s::bigint[],
       %(snapshot_no)s::integer[], %(last_ids)s::bigint[], %(floors)s::bigint[], %(release)s::boolean[],
       %(snapshots)s::text[]::pg_snapshot[], %(parks)s::json, %(done_ids)s::bigint[], %(durable)s::boolean)
       as saved (partition) on true
