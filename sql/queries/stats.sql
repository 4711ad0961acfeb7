-- name: stats_plan
-- For this transaction: read the primary key in order up to the limits, whatever the statistics promise, and each
-- statement within so many milliseconds, or as the session says: a pooled one says nothing.
select set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('statement_timeout', coalesce(%(limit)s::text, current_setting('statement_timeout')), true)

-- name: stats_overview
-- A row for each subscription, or for the one asked for: its instances, its partitions with what is pending, its parked
-- rows by state. A single row without a name if there is none. Moments are those of the statement's start.
-- `parked_age` is since a record should have been delivered: since it was published, or since its delay was over.
with chosen as materialized (
    select name, created_at, paused_at from {schema}.subscription
     where %(subscription)s::text is null or name = %(subscription)s
), cursors as materialized (
    -- What lies above several cursors is read once: each reads up to the next one of its partition.
    select p.subscription, p.partition, p.assignee, p.owner, p.epoch, p.claimed_at, p.saved_at, p.suspect_until_id,
           p.snapshot, p.last_id, p.floor_id,
           lead(p.last_id, 1, 9223372036854775807)
               over (partition by p.partition order by p.last_id, p.subscription) as next_id
      from chosen
      join {schema}.partition p on p.subscription = chosen.name
), gaps as materialized (
    -- Counted up to the limit, straight from the primary key. What lies between there and the newest thousand
    -- is estimated: so many ids, as densely this partition's as in the mean of both ends.
    select c.subscription, c.partition, c.last_id, low.count <= %(limit)s as exact,
           low.count::float8 / (low.upto - c.last_id) as fill,
           low.count + high.count + case when high.count < 1000 then 0 else
               ((high.since - low.upto - 1) * (low.count::float8 / (low.upto - c.last_id)
                + high.count::float8 / (high.upto - high.since + 1)) / 2)::bigint
           end as count
      from cursors c
     cross join lateral (
           select count(*) as count, max(id) as upto
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
    select g.subscription, g.partition,
           sum(g.count) over upwards as count, bool_and(g.exact) over upwards as exact,
           max(g.fill) over (partition by g.partition, g.last_id) as fill
      from gaps g
    window upwards as (partition by g.partition order by g.last_id desc, g.subscription desc rows unbounded preceding)
), shelves as materialized (
    -- The first of each state that is late by now; dead and discarded ones are through.
    select k.subscription, k.partition, k.state, count(*) as count,
           min(k.record_id) filter (where k.state not in ('dead', 'discarded') and (k.state <> 'scheduled' or k.due_at <= statement_timestamp()))
               as first_id
      from chosen
      join {schema}.parked k on k.subscription = chosen.name
     group by k.subscription, k.partition, k.state
), late_parked as materialized (
    select k.subscription, k.partition,
           max(extract(epoch from statement_timestamp()
               - least(greatest(r.created_at, r.available_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'))) as age
      from shelves k
     cross join lateral (
           select created_at, available_at from {schema}.record where partition = k.partition and id = k.first_id limit 1
         ) r
     group by k.subscription, k.partition
), backlog as materialized (
    select c.subscription, c.partition, c.assignee, c.owner, c.epoch,
           (above.count + late.count)::bigint as pending,
           above.exact and late.range <= %(limit)s as exact,
           -- A publisher may have said any time; infinity cannot be subtracted.
           case when coalesce(oldest.created_at, late.created_at) is not null then
               extract(epoch from statement_timestamp() - least(greatest(least(oldest.created_at, late.created_at),
                                                                         '0001-01-02 00:00Z'), '9999-12-30 00:00Z'))
           end as oldest_age,
           extract(epoch from statement_timestamp() - c.claimed_at) as claimed_age,
           extract(epoch from statement_timestamp() - c.saved_at) as saved_age,
           c.suspect_until_id is not null as suspect, c.last_id,
           above.fill::numeric,  -- a float in JSON is as exact as extra_float_digits says
           late_parked.age as parked_age
      from cursors c
      join above on above.subscription = c.subscription and above.partition = c.partition
     cross join lateral (
           select count(*) as range,
                  count(*) filter (where not pg_visible_in_snapshot(xid, c.snapshot)) as count,
                  min(created_at) filter (where not pg_visible_in_snapshot(xid, c.snapshot)) as created_at
             from (select xid, created_at from {schema}.record
                    where partition = c.partition and id > least(c.floor_id, c.last_id) and id <= c.last_id
                    order by id desc limit %(limit)s + 1) read
         ) late
      left join lateral (
           select created_at from {schema}.record where partition = c.partition and id > c.last_id
            order by id limit 1
         ) oldest on above.count > 0
      left join late_parked on late_parked.subscription = c.subscription and late_parked.partition = c.partition
), members as materialized (
    select i.subscription, i.instance_id, i.node, i.supervisor, i.hostname, i.pid, i.version, i.draining, i.running, i.sinks,
           extract(epoch from statement_timestamp() - i.started_at) as age,
           extract(epoch from statement_timestamp() - i.heartbeat_at) as heartbeat_age,
           extract(epoch from i.lease) as lease,
           (select count(*) from cursors c where c.owner = i.instance_id) as partitions
      from chosen
      join {schema}.instance i on i.subscription = chosen.name
), log as materialized (
    select {schema}.drawn() as newest_id,
           coalesce((select value::bigint from {schema}.meta where key = 'purged_id'), 0) as purged_id
), segments as materialized (
    -- As the planner does it: as many rows in a page as the last vacuum or analyze found, in the pages there are now.
    -- Null if a segment with pages has never been looked at, or was found empty.
    select case when bool_and(c.size = 0 or (c.reltuples > 0 and c.relpages > 0)) then
               coalesce(sum(c.reltuples / nullif(c.relpages, 0) * (c.size / current_setting('block_size')::float8)), 0)
           end as count
      from (select reltuples, relpages, coalesce(pg_relation_size(oid), 0) as size
              from pg_class
             where oid in (select inhrelid from pg_inherits
                            where inhparent = to_regclass(quote_ident({schema_name}) || '.record'))
            offset 0) c
)
select statement_timestamp(), current_database(), log.newest_id,
       greatest(0, least(segments.count, log.newest_id - log.purged_id))::bigint,
       (select count(*) from {schema}.segment_ranges() ahead where ahead.lower > log.newest_id),
       s.name, s.created_at, s.paused_at,
       (select coalesce(json_agg(m order by m.node, m.supervisor nulls first, m.hostname, m.pid, m.instance_id), '[]')
          from (select instance_id, node, supervisor, hostname, pid, version, draining, age, heartbeat_age, lease,
                       partitions, running, sinks
                  from members where subscription = s.name) m),
       (select coalesce(json_agg(b order by b.partition), '[]')
          from (select partition, assignee, owner, epoch, pending, exact, oldest_age, claimed_age, saved_age, suspect,
                       last_id, fill, parked_age
                  from backlog where subscription = s.name) b),
       (select coalesce(json_object_agg(k.state, k.count order by k.state), '{{}}')
          from (select state, sum(count)::bigint as count from shelves
                 where subscription = s.name group by state) k),
       (select count(*)
          from (select distinct aggregate_type, aggregate_id from {schema}.parked
                 where subscription = s.name and blocks) k)
  from log
 cross join segments
  left join chosen s on true
 order by s.name

-- name: stats_subscriptions
-- The names of all subscriptions.
select name from {schema}.subscription order by name
