-- name: waits_for_turn
-- Other queries contain this expression. It is true if a parked row, with its key behind it, only waits for its turn: under the limit of
-- its handler, while something is paused, or for the circuit of its value. No operator needs to act on such a row.
coalesce(starts_with(last_error, 'it waits for its turn: '), false)

-- name: waits
-- Other queries contain this expression. It is true if an unfinished parked row by itself waits for its turn or its time. All other
-- unfinished rows are trouble: they count against the brake, together with the rows that are held behind them. A row that has failed
-- before and waits now counts as trouble, too.
(state = 'scheduled' or state = 'deferred' and (last_error is null or {waits_for_turn}))

-- name: spilled
-- Other queries contain this condition. It is true if the record `r`, which the cursor of partition `p` has consumed, waits in the log
-- without a row, because its aggregate is held up.
exists (select from {schema}.spill w
         where w.subscription = p.subscription and w.partition = r.partition and w.from_id <= r.id
               and w.aggregate_type = r.aggregate_type and w.aggregate_id = r.aggregate_id)

-- name: blocked_list
-- The query returns the keys of the given subscriptions that have blocking rows, at most `limit` of each, the longest blocked first. Each
-- row has the head of the key, the number of rows that wait behind the head, and the process that owns the partition. Keys that wait for
-- their turn are left out.
with blocked as (
    select named.subscription, b.*
      from unnest(%(subscriptions)s::text[]) as named (subscription)
     cross join lateral (
           select k.aggregate_type, k.aggregate_id, min(k.record_id) as head, count(*) - 1 as followers, min(k.parked_at) as since
             from {schema}.parked k
            where k.subscription = named.subscription and k.blocks
            group by k.aggregate_type, k.aggregate_id
           having not bool_or({waits_for_turn}) and (%(since)s::timestamptz is null or min(k.parked_at) >= %(since)s)
                  and (%(until)s::timestamptz is null or min(k.parked_at) < %(until)s)
            order by since, head
            limit %(limit)s) b
)
select b.subscription, b.aggregate_type, b.aggregate_id, b.head, r.event_id, k.event_type, k.state, k.attempts,
       case when k.due_at is not null then least(k.due_at, '9999-12-30 00:00Z') end, k.last_error, b.followers,
       b.since, k.partition, i.instance_id, i.node, i.pid, k.traceback,
       (select w.from_id from {schema}.spill w
         where w.subscription = b.subscription and w.partition = k.partition
               and w.aggregate_type = b.aggregate_type and w.aggregate_id = b.aggregate_id)
  from blocked b
  join {schema}.parked k on k.subscription = b.subscription and k.record_id = b.head
  left join lateral (
       select r.event_id from {schema}.record r where r.partition = k.partition and r.id = b.head limit 1) r on true
  left join {schema}.partition p on p.subscription = k.subscription and p.partition = k.partition
  left join {schema}.instance i on i.instance_id = p.owner
 order by b.subscription, b.since, b.head

-- name: blocked_groups
-- The query returns groups of blocked keys whose heads are alike, the largest group first. Each row has the number of keys, the number of
-- events behind their heads, the first and the last time since when keys are blocked, and one head.
with blocked as materialized (
    select min(k.record_id) as head, count(*) - 1 as followers, min(k.parked_at) as since
      from {schema}.parked k
     where k.subscription = %(subscription)s and k.blocks
     group by k.aggregate_type, k.aggregate_id
    having not bool_or({waits_for_turn}) and (%(since)s::timestamptz is null or min(k.parked_at) >= %(since)s)
           and (%(until)s::timestamptz is null or min(k.parked_at) < %(until)s)
), grouped as materialized (
    select {schema}.dead_group(k.event_type || ' ' || k.state, k.last_error) as number, count(*) as keys,
           sum(b.followers)::bigint as followers, min(b.since) as since_from, max(b.since) as since_to, min(k.record_id) as head
      from blocked b
      join {schema}.parked k on k.subscription = %(subscription)s and k.record_id = b.head
     group by number
     order by keys desc, head
     limit %(limit)s
)
select g.keys, g.followers, g.since_from, g.since_to, k.event_type, k.state, k.aggregate_type, k.aggregate_id, k.record_id,
       k.last_error
  from grouped g
  join {schema}.parked k on k.subscription = %(subscription)s and k.record_id = g.head
 order by g.keys desc, g.head

-- name: blocked_retry
-- The head of a blocked key becomes due now; see the function `retry_now`.
select record_id, state, changed::integer as changed, array[record_id] as record_ids
  from {schema}.retry_now(%(subscription)s, %(aggregate_type)s, %(aggregate_id)s)

-- name: blocked_skip
-- The head of a blocked key stops blocking; see the function `skip`.
select record_id, state, changed::integer as changed, array[record_id] as record_ids
  from {schema}.skip(%(subscription)s, %(aggregate_type)s, %(aggregate_id)s,
                     coalesce(%(reason)s::text, 'by hand'), %(error_limit)s::integer)
