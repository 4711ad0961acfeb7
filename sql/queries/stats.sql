-- name: stats_plan
-- In this transaction the server reads the primary key in order up to the limits, whatever the statistics promise. Each statement has a
-- limit of so many milliseconds. Without one the limit of the session holds, and a pooled session has none.
select set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('statement_timeout', coalesce(%(limit)s::text, current_setting('statement_timeout')), true)

-- name: stats_overview
-- The query returns a row for each subscription, or for the given one: its instances, its partitions with their pending records, and its
-- parked rows by state. It returns a single row without a name if there is no subscription. Ages are in seconds, at the start of the
-- statement. `parked_age` is the time since a record should have been delivered: since it was published, or since its delay ended.
-- Partitions are listed for `listed` subscriptions: the named ones first, then those with instances. With `working` they are listed for
-- all subscriptions with instances. The other subscriptions have sums: their cursors are compared with the newest hundred records of each
-- partition, which are read once for all subscriptions. Below these records the number is estimated.
with chosen as materialized (
    select s.name, s.created_at, s.paused_at,
           row_number() over (order by s.name = any(%(named)s::text[]) desc, i.subscription is not null desc, s.name)
               <= %(listed)s or (%(working)s and i.subscription is not null) as listed
      from {schema}.subscription s
      left join (select distinct subscription from {schema}.instance) i on i.subscription = s.name
     where %(subscription)s::text is null or s.name = %(subscription)s
), cursors as materialized (
    -- Records above several cursors are read only once: each cursor reads up to the next cursor of its partition.
    select p.subscription, p.partition, p.assignee, p.owner, p.epoch, p.claimed_at, p.saved_at, p.suspect_until_id,
           p.snapshot, p.last_id, p.floor_id,
           lead(p.last_id, 1, 9223372036854775807)
               over (partition by p.partition order by p.last_id, p.subscription) as next_id
      from chosen
     cross join lateral (
           select * from {schema}.partition where subscription = chosen.name and chosen.listed offset 0
         ) p
), gaps as materialized (
    -- Records are counted up to the limit, by the primary key. Between the last counted record and the newest thousand,
    -- their number is estimated from the number of ids and the mean density of this partition's records at both ends.
    select c.*, low.count <= %(limit)s as exact,
           low.count::float8 / (low.upto - c.last_id) as fill,
           low.count + high.count + case when high.count < 1000 then 0 else
               ((high.since - low.upto - 1) * (low.count::float8 / (low.upto - c.last_id)
                + high.count::float8 / (high.upto - high.since + 1)) / 2)::bigint
           end as count, low.first_id
      from cursors c
     cross join lateral (
           select count(*) as count, min(id) as first_id, max(id) as upto
             from (select id from {schema}.record
                    where partition = c.partition and id > c.last_id and id <= c.next_id
                    order by id limit %(limit)s + 1) read
         ) low
     cross join lateral (
           select count(*) as count, min(id) as since, max(id) as upto
             from (select id from {schema}.record
                    where partition = c.partition and id > low.upto and id <= c.next_id and low.count > %(limit)s
                    order by id desc limit 1000) read
         ) high
), above as materialized (
    select g.subscription, g.partition, g.assignee, g.owner, g.epoch, g.claimed_at, g.saved_at, g.suspect_until_id,
           g.snapshot, g.last_id, g.floor_id,
           sum(g.count) over upwards as pending, bool_and(g.exact) over upwards as exact,
           max(g.fill) over (partition by g.partition, g.last_id) as fill, min(g.first_id) over upwards as first_id
      from gaps g
    window upwards as (partition by g.partition order by g.last_id desc, g.subscription desc rows unbounded preceding)
), shelves as materialized (
    -- `first_id` is the first record of each state that is late by now. Dead and discarded records are finished.
    select k.subscription, k.partition, k.state, count(*) as count,
           min(k.record_id) filter (where k.state not in ('dead', 'discarded') and (k.state <> 'scheduled' or k.due_at <= statement_timestamp()))
               as first_id
      from chosen
      join {schema}.parked k on k.subscription = chosen.name
     group by k.subscription, k.partition, k.state
), states as materialized (
    select k.subscription, json_object_agg(k.state, k.count order by k.state) as counts, min(k.first) as first
      from (select subscription, state, sum(count)::bigint as count,
                   min(array[first_id, partition]) filter (where first_id is not null) as first
              from shelves group by subscription, state) k
     group by k.subscription
), blocking as materialized (
    select k.subscription, count(*) as count
      from (select p.subscription
              from chosen join {schema}.parked p on p.subscription = chosen.name
             where p.blocks
             group by p.subscription, p.aggregate_type, p.aggregate_id
            having not bool_or({waits_for_turn})) k
     group by k.subscription
), late_parked as materialized (
    select k.subscription, k.partition,
           max(extract(epoch from statement_timestamp()
               - least(greatest(r.created_at, r.available_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'))) as age
      from shelves k
      join chosen on chosen.name = k.subscription and chosen.listed
     cross join lateral (
           select created_at, available_at from {schema}.record where partition = k.partition and id = k.first_id limit 1
         ) r
     group by k.subscription, k.partition
), backlog as materialized (
    select c.subscription, c.partition, c.assignee, c.owner, c.epoch,
           (c.pending + late.count)::bigint as pending,
           c.exact and late.range <= %(limit)s as exact,
           -- A publisher may have given any time, and infinity cannot be subtracted.
           case when coalesce(oldest.created_at, late.created_at) is not null then
               extract(epoch from statement_timestamp() - least(greatest(least(oldest.created_at, late.created_at),
                                                                         '0001-01-02 00:00Z'), '9999-12-30 00:00Z'))
           end as oldest_age,
           extract(epoch from statement_timestamp() - c.claimed_at) as claimed_age,
           extract(epoch from statement_timestamp() - c.saved_at) as saved_age,
           c.suspect_until_id is not null as suspect, c.last_id,
           -- The precision of a float in JSON would depend on extra_float_digits.
           c.fill::numeric,
           late_parked.age as parked_age
      from above c
     cross join lateral (
           -- A long snapshot is stored out of line. It is read once here, and not again for each record.
           select case when c.floor_id < c.last_id then c.snapshot::text::pg_snapshot end as snapshot offset 0) saved
     cross join lateral (
           select count(*) as range,
                  count(*) filter (where not pg_visible_in_snapshot(xid, saved.snapshot)) as count,
                  min(created_at) filter (where not pg_visible_in_snapshot(xid, saved.snapshot)) as created_at
             from (select xid, created_at from {schema}.record
                    where partition = c.partition and id > c.floor_id and id <= c.last_id and c.floor_id < c.last_id
                    order by id desc limit %(limit)s + 1) read
         ) late
      left join lateral (
           select created_at from {schema}.record
            where partition = c.partition and id = c.first_id limit 1
         ) oldest on true
      left join late_parked on late_parked.subscription = c.subscription and late_parked.partition = c.partition
), partitions as materialized (
    select b.subscription,
           json_agg((select row from (select b.partition, b.assignee, b.owner, b.epoch, b.pending, b.exact, b.oldest_age,
                                             b.claimed_age, b.saved_age, b.suspect, b.last_id, b.fill, b.parked_age) row)
                    order by b.partition) as list
      from backlog b
     group by b.subscription
), segments as materialized (
    -- The number of records is estimated as the planner does it: the rows per page at the last vacuum or analyze, times
    -- the pages that exist now. It is null if a segment with pages was never analyzed, or was found empty.
    select case when bool_and(c.size = 0 or (c.reltuples > 0 and c.relpages > 0)) then
               coalesce(sum(c.reltuples / nullif(c.relpages, 0) * (c.size / current_setting('block_size')::float8)), 0)
           end as count
      from (select reltuples, relpages, coalesce(pg_relation_size(oid), 0) as size
              from pg_class
             where oid in (select inhrelid from pg_inherits
                            where inhparent = to_regclass(quote_ident({schema_name}) || '.record'))
            offset 0) c
), log as materialized (
    -- `records` is about the number of records in the log, and `fill` the number for one id of one partition.
    select known.*, greatest(0, least(segments.count, known.newest_id - known.purged_id))::bigint as records,
           coalesce(least(segments.count / nullif(known.newest_id - known.purged_id, 0), 1), 1) / 256 as fill
      from segments
     cross join (
           select {schema}.drawn() as newest_id,
                  coalesce((select value::bigint from {schema}.meta where key = 'purged_id'), 0) as purged_id,
                  (select count(*) from {schema}.segment_ranges() ahead where ahead.lower > {schema}.drawn()) as ahead
           ) known
), newest as materialized (
    select n as partition, recent.ids
      from generate_series(0, 255) n
     cross join lateral (
           select array_agg(id order by id) as ids
             from (select id from {schema}.record where partition = n order by id desc limit 101) read
         ) recent
     where exists (select from chosen where not listed)
), sums as materialized (
    -- A full join is no nested loop, which old statistics make the planner choose. It would read `newest` for each cursor.
    select u.subscription, count(*) as partitions,
           count(*) filter (where not exists (select from {schema}.instance i where i.instance_id = u.owner)) as unowned,
           coalesce(sum(u.count), 0) as pending, coalesce(max(u.count), 0) as pending_max,
           coalesce(bool_and(u.exact), true) as exact,
           min(array[u.last_id, u.partition]) filter (where u.count > 0) as lowest
      from (select p.subscription, p.partition, p.owner, p.last_id, p.last_id >= newest.ids[1] or newest.ids[101] is null as exact,
                   cardinality(newest.ids) - width_bucket(p.last_id, newest.ids)
                   + case when p.last_id < newest.ids[1] and newest.ids[101] is not null
                          then ((newest.ids[1] - p.last_id - 1) * (select fill from log))::bigint else 0 end as count
              from (select cursor.*
                      from chosen
                     cross join lateral (
                           select subscription, partition, owner, last_id from {schema}.partition
                            where subscription = chosen.name and not chosen.listed
                           offset 0) cursor) p
              full join newest on newest.partition = p.partition
            offset 0) u
     where u.subscription is not null
     group by u.subscription
), unlisted as materialized (
    select s.subscription, s.partitions, s.unowned, s.pending, s.pending_max, s.exact,
           case when pending.created_at is not null then
               extract(epoch from statement_timestamp() - least(greatest(pending.created_at, '0001-01-02 00:00Z'),
                                                                '9999-12-30 00:00Z'))
           end as oldest_age,
           case when parked.created_at is not null then
               extract(epoch from statement_timestamp() - least(greatest(parked.created_at, parked.available_at,
                                                                         '0001-01-02 00:00Z'), '9999-12-30 00:00Z'))
           end as parked_age
      from sums s
      left join states on states.subscription = s.subscription
      left join lateral (
           select created_at from {schema}.record
            where partition = s.lowest[2] and id > s.lowest[1] order by id limit 1
         ) pending on true
      left join lateral (
           select created_at, available_at from {schema}.record
            where partition = states.first[2] and id = states.first[1] limit 1
         ) parked on true
), members as materialized (
    select i.subscription,
           json_agg((select row from (select i.instance_id, i.node, i.supervisor, i.hostname, i.pid, i.version, i.draining,
                                             extract(epoch from statement_timestamp() - i.started_at) as age,
                                             extract(epoch from statement_timestamp() - i.heartbeat_at) as heartbeat_age,
                                             extract(epoch from i.lease) as lease, coalesce(owned.count, 0) as partitions,
                                             i.running, i.sinks, i.limits -> 'kept' as limits, i.limits -> 'held' as held,
                                             extract(epoch from statement_timestamp()) - (i.limits ->> 'at')::numeric as limits_age) row)
                    order by i.node, i.supervisor nulls first, i.hostname, i.pid, i.instance_id) as list
      from chosen
      join {schema}.instance i on i.subscription = chosen.name
      left join (select p.owner, count(*) as count
                   from chosen join {schema}.partition p on p.subscription = chosen.name
                  where p.owner is not null group by p.owner) owned
           on owned.owner = i.instance_id
     group by i.subscription
), changed as materialized (
    select l.subscription,
           json_agg((select row from (select l.kind, l.handler, l.value, l.rate, l.at_once, l.changed_by,
                                             extract(epoch from l.changed_at)::float8 as changed_at) row)) as list
      from chosen
      join (select subscription, 'handler' as kind, handler, '' as value, rate, at_once, changed_by, changed_at
              from {schema}.handler_limit
            union all
            select subscription, kind, handler, value, 0, null, changed_by, changed_at from {schema}.pause) l
           on l.subscription = chosen.name
     group by l.subscription
)
select statement_timestamp(), current_database(), log.newest_id, log.records, log.ahead,
       s.name, s.created_at, s.paused_at, coalesce(members.list, '[]'), coalesce(partitions.list, '[]'), to_json(unlisted),
       coalesce(states.counts, '{{}}'), coalesce(blocking.count, 0), coalesce(changed.list, '[]')
  from log
  left join chosen s on true
  left join members on members.subscription = s.name
  left join partitions on partitions.subscription = s.name
  left join unlisted on unlisted.subscription = s.name
  left join states on states.subscription = s.name
  left join blocking on blocking.subscription = s.name
  left join changed on changed.subscription = s.name
 order by s.name

-- name: stats_subscriptions
-- The query returns the names of all subscriptions in alphabetical order.
select name from {schema}.subscription order by name
