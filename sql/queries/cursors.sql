-- name: mine
-- Part of others: the partitions that I own or am assigned, each found by an index, whatever the number of the others.
    select p.partition, coalesce(p.assignee = %(me)s::uuid, false) as assigned, coalesce(p.owner = %(me)s::uuid, false) as owned,
           p.owner is null as free, p.epoch, p.parked_version
      from (select * from {schema}.partition a where a.subscription = %(subscription)s and a.assignee = %(me)s::uuid
            union all
            select * from {schema}.partition o
             where o.subscription = %(subscription)s and o.owner = %(me)s::uuid and o.assignee is distinct from %(me)s::uuid) as p

-- name: limited
-- Part of others: what operators have set for handlers of the subscription, which mostly is nothing.
    select l.handler, l.rate, l.at_once from {schema}.handler_limit l where l.subscription = %(subscription)s

-- name: digest
-- Part of others: a number that changes with whatever a tick says of these, and of limits; null if there are none. Two places
-- of a record's hash are faster than the hash of a record, for which the server looks up the type of each column.
bit_xor(hashint8extended(mine.epoch, (mine.parked_version << 11) + (mine.partition::bigint << 3) + (mine.assigned::integer << 2)
                                     + (mine.owned::integer << 1) + mine.free::integer))
    # coalesce((select bit_xor(hashtextextended(row(l.handler, l.rate, l.at_once)::text, 0)) from ({limited}) as l), 0)

-- name: calm
-- An idle check that makes no fence, for one who has seen all that this says: how far the bell's flag lies ahead; whether still
-- as many ids are drawn, my partitions' digest is the one that is known, and no row of the subscription is due some time; and
-- the server's life. A third of what a tick takes, so a tick is taken when this says no.
select {flag_ahead},
       {drawn} = %(drawn)s::bigint
       and (select {digest} from ({mine}) as mine) is not distinct from %(known)s::bigint
       and not exists (select from {schema}.parked k where k.subscription = %(subscription)s and k.due_at is not null),
       pg_sequence_last_value(%(life)s::oid::regclass), {log_named}

-- name: tick
-- An idle check (see `fence`), and in the same round trip my partitions, to hold and to claim, with a digest of them: they
-- only come, an array for each column, if their digest is not the one that is `known`, for nearly always they are 256 rows
-- that say what the last tick has said. As many arrays of limits come with them. Then those of mine with a parked row that is due some time, and the seconds until the
-- first one is. A publisher may have said any time; infinity cannot be subtracted. The index is asked for one partition
-- after the other that has any: few have.
with recursive look as materialized (
{fence}
), mine as materialized (
{mine}
), digest as materialized (
    select {digest} as of_mine from mine
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
       (select array_agg(handler), array_agg(rate), array_agg(at_once)
          from ({limited}) as l
         where (select of_mine from digest) is distinct from %(known)s::bigint) as limited

-- name: claim
-- Take what is assigned to me and free; see the function.
select partition, epoch, snapshot::text, last_id, floor_id, parked_version, suspect_until_id,
       case when suspect_until_id is null then extract(epoch from claimed_at - saved_at)::float8 end
  from {schema}.claim(%(subscription)s, %(me)s::uuid)

-- name: take_up
-- Those of these partitions that are mine under these epochs, with their saved cursors; each under a new epoch. What an
-- earlier connection of mine has sent may still arrive, and finds itself refused: so does a take-up, by the epochs.
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
-- The fenced write, see the function; how long the server took for it, which a busy client cannot tell; and whether the
-- server is in the life that the session began in. In another it is nobody who saves, who owns nothing and writes nothing.
-- Last, with its tables locked, and once, for it is an aggregate: whether it has written to those that the session began with.
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
