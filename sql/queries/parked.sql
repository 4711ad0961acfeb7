-- name: blocking
-- The query returns the rows that block their key, for the index in memory, in the order of ids. The seventh column is the number of
-- seconds until the row is due. Rows that wait for their turn are due at once, because their turn is computed again.
select k.partition, k.record_id, k.aggregate_type, k.aggregate_id, k.state, k.attempts,
       case when k.state = 'deferred' and {waits_for_turn} then 0.0
            when k.due_at is not null then extract(epoch from least(k.due_at, '9999-12-30 00:00Z') - clock_timestamp())::float8 end,
       k.started_at is not null, case when k.state = 'deferred' and {waits_for_turn} then k.last_error end, {waits}
  from {schema}.parked k
 where k.subscription = %(subscription)s and k.partition = any (%(partitions)s::smallint[]) and k.blocks
 order by k.record_id

-- name: ahead
-- The query returns the parked rows that the saved cursor may not have passed, also dead and discarded ones. The poll will return their
-- records.
select k.partition, k.record_id
  from {schema}.parked k
  join {schema}.partition p on p.subscription = k.subscription and p.partition = k.partition
 where k.subscription = %(subscription)s and k.partition = any (%(partitions)s::smallint[])
       and k.record_id > least(p.floor_id, p.last_id)

-- name: spills
-- The query returns the keys whose later records wait in the log without rows, and from which id on.
select w.partition, w.aggregate_type, w.aggregate_id, w.from_id
  from {schema}.spill w
 where w.subscription = %(subscription)s and w.partition = any (%(partitions)s::smallint[])

-- name: refill
-- The statement inserts rows for the next records of spilled keys; see the function.
select * from {schema}.refill(%(subscription)s, %(me)s, %(partition)s::smallint, %(epoch)s::bigint, %(consumed_id)s::bigint,
                              %(keys)s::json, %(types)s::text[], %(most_read)s::integer)

-- name: loose_rows
-- The query returns the rows of each partition that block nothing: how many count against its brake, how many wait, and the ids of those
-- that wait for their turn, the earliest due first.
select k.partition, count(*) filter (where not {waits}), count(*) filter (where {waits}),
       coalesce(array_agg(k.record_id order by k.due_at) filter (where k.state = 'deferred' and {waits_for_turn}), '{{}}')
  from {schema}.parked k
 where k.subscription = %(subscription)s and k.partition = any (%(partitions)s::smallint[])
       and not k.blocks and k.state not in ('dead', 'discarded')
 group by k.partition

-- name: due
-- The query returns due rows that block nothing and are not in memory (`taken`), in the order of ids: of each partition the `share` that
-- is due longest, and together at most `room`. The rows in `early` come first. They waited for a permit, which came before they were due.
-- The third branch adds dead rows for the dead-letter hook, the longest waiting first. A dead row that has a due time, whether it blocks
-- or not, has not been passed to the hook yet.
-- Each partition is read from the front of its index, so a page costs the same however many rows are due. `now()` can be a bound of that
-- search. A subquery of `taken` is hashed once, and an array would be searched for each row.
(select {due_row}, null::text, {waits}
   from unnest(%(early)s::bigint[]) as early (id)
   join {schema}.parked k on k.subscription = %(subscription)s and k.record_id = early.id
  where k.partition = any (%(partitions)s::smallint[]) and k.state = 'deferred' and not k.blocks
        and k.record_id not in (select unnest(%(taken)s::bigint[]))
  order by k.record_id
  limit %(room)s)
union all
(select {due_row}, null::text, {waits}
   from unnest(%(partitions)s::smallint[]) as wanted (partition)
  cross join lateral (
        select k.*
          from {schema}.parked k
         where k.subscription = %(subscription)s and k.partition = wanted.partition and k.due_at <= now()
               and not k.blocks and k.state <> 'dead'
               and k.record_id not in (select unnest(%(taken)s::bigint[] || %(early)s::bigint[]))
         order by k.due_at
         limit %(share)s) as k
  order by k.record_id
  limit greatest(%(room)s - cardinality(%(early)s::bigint[]), 0))
union all
(select k.partition, k.record_id, k.aggregate_type, k.aggregate_id, k.state, k.attempts, null::float8,
        k.started_at is not null, k.last_error, false
   from {schema}.parked k
  where k.subscription = %(subscription)s and k.partition = any (%(partitions)s::smallint[])
        and k.due_at <= now() and k.state = 'dead'
        and k.record_id not in (select unnest(%(taken)s::bigint[]))
  order by k.due_at, k.record_id
  limit %(letters)s)

-- name: due_row
-- Other queries contain this list of columns of a parked row `k`.
k.partition, k.record_id, k.aggregate_type, k.aggregate_id, k.state, k.attempts,
        extract(epoch from least(k.due_at, '9999-12-30 00:00Z') - clock_timestamp())::float8, k.started_at is not null

-- name: may_start
-- The query returns those of the given scheduled records that nobody cancels; see the function `may_start`.
select {schema}.may_start(%(subscription)s, %(record_ids)s::bigint[])
