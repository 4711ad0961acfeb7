-- name: dead_chosen
-- A part of those below: the dead records `k` that filters choose.
k.subscription = %(subscription)s and k.state = 'dead'
and (%(event_type)s::text is null or k.event_type = %(event_type)s)
and (%(aggregate_type)s::text is null or k.aggregate_type = %(aggregate_type)s)
and (%(aggregate_id)s::text is null or k.aggregate_id = %(aggregate_id)s)
and (%(group)s::bigint is null or {schema}.dead_group(k.event_type, k.last_error) = %(group)s)
and (%(older_than)s::float8 is null
     or k.parked_at <= statement_timestamp() - make_interval(secs => least(%(older_than)s, 3e9)))
and (%(since)s::timestamptz is null or k.parked_at >= %(since)s)
and (%(until)s::timestamptz is null or k.parked_at < %(until)s)

-- name: dead_list
-- Dead records, oldest first. The log is asked for those alone, one row at a time, by its key: it may be any size.
select k.record_id, r.event_id, k.event_type, k.aggregate_type, k.aggregate_id, r.tenant_id, k.attempts, k.parked_at,
       r.created_at, k.last_error, k.blocks, k.traceback
  from (select k.*
          from {schema}.parked k
         where {dead_chosen}
               and (%(after)s::bigint is null or k.record_id > %(after)s)
         order by k.record_id
         limit %(limit)s) k
  left join lateral (
       select r.event_id, r.tenant_id, least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') as created_at
         from {schema}.record r where r.partition = k.partition and r.id = k.record_id limit 1) r on true
 order by k.record_id

-- name: dead_groups
-- Dead records that are alike, the most frequent first: how many, since when, and the newest of them as in a list.
select n.number, n.count, n.blocking, n.died_from, n.died_to,
       k.record_id, r.event_id, k.event_type, k.aggregate_type, k.aggregate_id, r.tenant_id, k.attempts, k.parked_at,
       r.created_at, k.last_error, k.blocks, k.traceback
  from (select {schema}.dead_group(k.event_type, k.last_error) as number, count(*) as count,
               count(*) filter (where k.blocks) as blocking, min(k.parked_at) as died_from, max(k.parked_at) as died_to,
               max(k.record_id) as newest
          from {schema}.parked k
         where {dead_chosen}
         group by number
         order by count desc, newest desc
         limit %(limit)s) n
  join {schema}.parked k on k.subscription = %(subscription)s and k.record_id = n.newest
  left join lateral (
       select r.event_id, r.tenant_id, least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') as created_at
         from {schema}.record r where r.partition = k.partition and r.id = k.record_id limit 1) r on true
 order by n.count desc, n.newest desc

-- name: dead_count
-- How many.
select count(*)
  from {schema}.parked k
 where {dead_chosen}

-- name: dead_chunks
-- The ids of all that match, in chunks of about `size`: keys in the order of their lowest id, never a key in two chunks.
-- A record without aggregate id is a key of its own. `rank` counts the records of the keys before. Read at once, so that
-- what dies again after its replay is not replayed again, and every chunk is found without reading the rest once more.
select array_agg(placed.record_id order by placed.record_id)
  from (select keyed.record_id, (rank() over (order by keyed.lowest) - 1) / %(size)s::bigint as chunk
          from (select k.record_id,
                       min(k.record_id) over (partition by k.aggregate_type, k.aggregate_id,
                                              case when k.aggregate_id is null then k.record_id end) as lowest
                  from {schema}.parked k
                 where {dead_chosen}
               ) keyed) placed
 group by placed.chunk
 order by placed.chunk

-- name: dead_of_event
-- The dead records of an event id; the log has no index on those, but few records are dead.
select k.record_id
  from {schema}.parked k
 cross join lateral (
       select r.event_id from {schema}.record r where r.partition = k.partition and r.id = k.record_id limit 1) r
 where k.subscription = %(subscription)s and k.state = 'dead' and r.event_id = %(event_id)s::uuid
 order by k.record_id

-- name: dead_show
-- One dead record with what the log holds of it; the payload only if it is wanted.
select k.record_id, r.event_id, k.event_type, k.aggregate_type, k.aggregate_id, r.tenant_id, k.attempts, k.parked_at,
       case when r.id is not null then least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') end,
       k.last_error, k.blocks, k.traceback,
       case when r.id is not null then least(greatest(r.occurred_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') end,
       r.content_type, r.headers::text,
       case when %(payload)s then r.payload::text end, case when %(payload)s then r.payload_bytes end
  from {schema}.parked k
  left join {schema}.record r on r.partition = k.partition and r.id = k.record_id
 where k.subscription = %(subscription)s and k.record_id = %(record_id)s::bigint and k.state = 'dead'

-- name: dead_replay
-- These records are ready again; see the function.
select {schema}.replay(%(subscription)s, %(record_ids)s::bigint[]) as changed

-- name: dead_discard
-- These records are given up; see the function.
select {schema}.discard(%(subscription)s, %(record_ids)s::bigint[]) as changed

-- name: parked_state
-- What a record is parked as, if it is.
select k.state from {schema}.parked k where k.subscription = %(subscription)s and k.record_id = %(record_id)s::bigint

-- name: moment_ago
-- The moment so many seconds ago, by the database's clock.
select clock_timestamp() - make_interval(secs => least(%(ago)s::float8, 3e9))
