-- name: dead_chosen
-- Other queries contain this condition. It is true if the parked row `k` is dead and matches the filters. `older_than` is in seconds.
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
-- The query returns dead records, the oldest first. The log can have any size, so it is read for the chosen rows only, one at a time and
-- by its key.
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
-- The query returns groups of dead records that are alike, the largest group first. Each row has the number of the group, how many
-- records it has and how many of them block, the first and the last time of death, and the newest record with the columns of `dead_list`.
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
-- The query returns the number of dead records that match.
select count(*)
  from {schema}.parked k
 where {dead_chosen}

-- name: dead_chunks
-- The query returns the ids of all dead records that match, in arrays of about `size` ids. The keys are in the order of their lowest ids,
-- and no key is in two arrays. A record without an aggregate id is a key of its own. `rank` counts the records of the keys before. All
-- ids are read at once. So a record that dies again after its replay is not replayed again, and no array needs another search through the
-- rest.
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
-- The query returns the ids of the dead records of an event id. The log has no index on event ids, but few records are dead.
select k.record_id
  from {schema}.parked k
 cross join lateral (
       select r.event_id from {schema}.record r where r.partition = k.partition and r.id = k.record_id limit 1) r
 where k.subscription = %(subscription)s and k.state = 'dead' and r.event_id = %(event_id)s::uuid
 order by k.record_id

-- name: dead_show
-- The query returns one dead record with its data from the log. The payload is read only if `payload` is true.
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
-- The given records become ready again; see the function `replay`.
select {schema}.replay(%(subscription)s, %(record_ids)s::bigint[]) as changed

-- name: dead_discard
-- The given records are discarded; see the function `discard`.
select {schema}.discard(%(subscription)s, %(record_ids)s::bigint[]) as changed

-- name: parked_state
-- The query returns the state of a parked record. It returns no row if the record is not parked.
select k.state from {schema}.parked k where k.subscription = %(subscription)s and k.record_id = %(record_id)s::bigint

-- name: moment_ago
-- The query returns the time `ago` seconds before now, by the database's clock.
select clock_timestamp() - make_interval(secs => least(%(ago)s::float8, 3e9))
