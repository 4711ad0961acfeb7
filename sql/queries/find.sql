-- name: find_moment
-- The query returns approximately the first id that was published at `when` or later.
select {schema}.id_at(%(when)s::timestamptz)

-- name: find_stretch
-- Other queries contain this clause. It reads the log by the index on ids.
from {schema}.record r where r.partition >= 0 and r.id < %(before)s and r.id >= %(low)s

-- name: find_partition_stretch
-- Other queries contain this clause. It reads one partition by the primary key. The partition is that of an aggregate id, or of an event
-- id if the event has no aggregate id.
from {schema}.record r where r.partition = %(partition)s and r.id < %(before)s and r.id >= %(low)s

-- name: find_hit
-- Other queries contain this condition. It is true if the record `r` matches the search.
((%(event_id)s::uuid is null or r.event_id = %(event_id)s)
 and (%(aggregate_id)s::text is null or r.aggregate_id = %(aggregate_id)s)
 and (%(event_type)s::text is null or r.event_type = %(event_type)s)
 and (%(aggregate_type)s::text is null or r.aggregate_type = %(aggregate_type)s)
 and (%(tenant_id)s::text is null or r.tenant_id = %(tenant_id)s)
 and (%(since)s::timestamptz is null or r.created_at >= %(since)s)
 and (%(until)s::timestamptz is null or r.created_at < %(until)s))

-- name: find_edge
-- The query returns the id of the record that lies `most` records back. It returns no row if there are fewer records. It reads index
-- entries only.
select r.id {find_stretch} order by r.id desc offset %(most)s limit 1

-- name: find_partition_edge
-- The query does the same as `find_edge` in one partition.
select r.id {find_partition_stretch} order by r.id desc offset %(most)s limit 1

-- name: find_in_log
-- The query returns the newest records that match the search.
select r.id, r.partition {find_stretch} and {find_hit} order by r.id desc limit %(limit)s

-- name: find_in_partition
-- The query does the same as `find_in_log` in one partition.
select r.id, r.partition {find_partition_stretch} and {find_hit} order by r.id desc limit %(limit)s

-- name: find_published
-- The query returns the time at which the first record with this id or a higher one was published.
select least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z')
  from {schema}.record r where r.partition >= 0 and r.id >= %(record_id)s order by r.id limit 1

-- name: find_ignoring
-- Other queries contain this query. It returns the event types that processes of the subscriptions handle. Such a process ignores all
-- other types.
select distinct h.subscription, h.types::text as types
  from {schema}.handled_types h where %(subscription)s::text is null or h.subscription = %(subscription)s

-- name: find_to
-- Other queries contain this clause. It selects the records that can have ended by the time `to`, because they were published before.
{schema}.record r
 where r.partition >= 0 and r.id < %(before)s
       and r.id < (select case when %(to)s::timestamptz is null then %(before)s
                               else {schema}.id_at(%(to)s::timestamptz + interval '1 second') end)

-- name: find_unhandled
-- Other queries contain this query. It returns the newest records that a process has ignored because it had no handler for them. The view
-- `delivery` is read only for records whose type some process of the subscription does not handle.
select ignored.id, ignored.delivered_before
  from (select distinct r.id, r.partition, h.subscription
          from (select r.* from {find_to} and 'unhandled' = any (%(outcomes)s) order by r.id desc limit %(most_read)s) r
          join ({find_ignoring}) h on not exists (
                   select from json_array_elements(h.types::json) t
                    where t ->> 0 in ('*', r.event_type) and coalesce(t ->> 1, r.aggregate_type) = r.aggregate_type)
         where {find_hit}) candidate
 cross join lateral (
       select d.id, d.delivered_before from {schema}.delivery d
        where d.partition = candidate.partition and d.id = candidate.id and d.subscription = candidate.subscription
              and d.outcome = 'ignored' and d.delivered_before >= %(from)s
              and d.delivered_before < coalesce(%(to)s::timestamptz, 'infinity')) ignored

-- name: find_unhandled_edge
-- The query returns the id of the last record that `find_unhandled` reads. It returns no row if there are fewer records.
select r.id from {find_to} and exists ({find_ignoring}) order by r.id desc offset %(most_read)s - 1 limit 1

-- name: find_befallen
-- The query returns the records that had one of the `outcomes` between `from` and `to`, with the time of the latest outcome, the latest
-- first. Each branch reads at most `most` times. A record that died or was discarded before partbox kept a history has only its parked
-- row.
select r.id, r.partition, b.at
  from (select e.record_id, max(e.at) as at
          from ((select a.record_id, a.at
                   from {schema}.attempt a
                  where a.at >= %(from)s and a.at < coalesce(%(to)s::timestamptz, 'infinity') and a.outcome = any (%(outcomes)s)
                        and (a.outcome <> 'ignored' or a.attempt > 0 or 'unhandled' = any (%(outcomes)s))
                        and (%(subscription)s::text is null or a.subscription = %(subscription)s)
                  order by a.at desc limit %(most)s)
                union all
                (select k.record_id, k.parked_at
                   from {schema}.parked k
                  where k.parked_at >= %(from)s and k.parked_at < coalesce(%(to)s::timestamptz, 'infinity') and k.state = any (%(outcomes)s)
                        and (%(subscription)s::text is null or k.subscription = %(subscription)s)
                        and not exists (select from {schema}.cancellation c where c.record_id = k.record_id)
                  order by k.parked_at desc limit %(most)s)
                union all
                (select c.record_id, c.at
                   from {schema}.cancellation c
                  where c.at >= %(from)s and c.at < coalesce(%(to)s::timestamptz, 'infinity') and 'cancelled' = any (%(outcomes)s)
                  order by c.at desc limit %(most)s)
                union all
                ({find_unhandled})) e
         group by e.record_id) b
 cross join lateral (
       select r.* from {schema}.record r where r.partition >= 0 and r.id = b.record_id limit 1) r
 where {find_hit} and r.id < %(before)s
 order by b.at desc, r.id desc
 limit %(limit)s

-- name: find_key
-- The query returns the event id that was published with an idempotency key, and the time of publishing.
select event_id, created_at from {schema}.idempotency where key = %(key)s

-- name: find_records
-- The query returns the data of the given records from the log. The payload is read only if `payload` is true.
select r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id, r.partition,
       least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'),
       least(greatest(r.occurred_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'),
       case when r.available_at is not null then least(greatest(r.available_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') end,
       r.content_type, coalesce(octet_length(r.payload_bytes), octet_length(r.payload::text), 0), r.headers::text,
       case when %(payload)s then r.payload::text end, case when %(payload)s then r.payload_bytes end
  from unnest(%(ids)s::bigint[], %(partitions)s::smallint[]) as chosen (id, partition)
 cross join lateral (
       select r.* from {schema}.record r where r.partition = chosen.partition and r.id = chosen.id limit 1) r

-- name: find_history
-- The query returns the history of the given records, the oldest entry first. An operator's act has a note in `action`, which was written
-- at the same time and names the operator (`who`) and the reason, if one was given.
select a.record_id, a.subscription, a.at, a.outcome, a.attempt, a.instance, a.seconds, coalesce(a.error, act.reason), act.who
  from {schema}.subscription s
  join {schema}.attempt a on a.subscription = s.name and a.record_id = any (%(ids)s::bigint[])
  left join lateral (
       select x.who, x.reason
         from {schema}.action x
        where a.outcome in ('skipped', 'replayed', 'discarded') and x.subscription = a.subscription
              and x.at between a.at - interval '1 minute' and a.at + interval '1 minute'
              and x.target @> jsonb_build_object('record_ids', jsonb_build_array(a.record_id))
        order by greatest(x.at, a.at) - least(x.at, a.at) limit 1) act on true
 where %(subscription)s::text is null or s.name = %(subscription)s
union all
select c.record_id, s.name, c.at, 'cancelled', 0, null, null, null, c.who
  from {schema}.subscription s
  join {schema}.cancellation c on c.record_id = any (%(ids)s::bigint[])
 where %(subscription)s::text is null or s.name = %(subscription)s
 order by 1, 2, 3

-- name: find_standings
-- The query returns the status of each given record in each subscription, or in the given one. The status comes from the cursor, the
-- parked rows and the processes. The ninth column is the number of records of the partition that are to be read before this one, counted
-- up to `most`. The tenth column is the record for which the aggregate waits. The newest record comes first.
with chosen as materialized (
    select r.id, r.xid, r.partition, r.event_type, r.aggregate_type, r.aggregate_id
      from unnest(%(ids)s::bigint[], %(partitions)s::smallint[]) as given (id, partition)
     cross join lateral (
           select r.* from {schema}.record r where r.partition = given.partition and r.id = given.id limit 1) r
), heads as materialized (
    select k.subscription, k.aggregate_type, k.aggregate_id, min(k.record_id) as id
      from {schema}.parked k
     where k.blocks and (k.aggregate_type, k.aggregate_id) in (select c.aggregate_type, c.aggregate_id from chosen c)
     group by k.subscription, k.aggregate_type, k.aggregate_id
)
select r.id, s.name, r.partition, s.paused_at is not null,
       s.type_filters is null or r.event_type = any (s.type_filters), read.consumed, i.pid || ' on ' || i.node,
       k.started_at is not null or exists (
           select from json_array_elements(i.running) each where each ->> 'record_id' = r.id::text),
       case when not read.consumed then (
           select count(*) from (select from {schema}.record b
                                  where b.partition = r.partition and b.id > p.last_id and b.id < r.id
                                  limit %(most)s) before) end,
       case when h.id < r.id then h.id end,
       case when over.at is not null then 'cancelled' when k.record_id is null and read.spilled then 'held' else k.state end,
       coalesce(k.attempts, 0),
       case when k.state <> 'dead' then least(k.due_at, '9999-12-30 00:00Z') end, coalesce(over.at, k.parked_at),
       k.last_error, k.traceback,
       d.outcome, least(greatest(d.delivered_after, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'), d.delivered_before, d.process
  from chosen r
  join {schema}.partition p on p.partition = r.partition and (%(subscription)s::text is null or p.subscription = %(subscription)s)
  join {schema}.subscription s on s.name = p.subscription
 cross join lateral (
       select r.id <= least(p.floor_id, p.last_id) or (r.id <= p.last_id and pg_visible_in_snapshot(r.xid, p.snapshot)) as consumed,
              {spilled} as spilled) read
  left join {schema}.instance i on i.instance_id = p.owner
  left join {schema}.parked k on k.subscription = p.subscription and k.record_id = r.id
  left join lateral (
       select c.at from {schema}.cancellation c
        where c.record_id = r.id
              and case when k.record_id is null then not read.consumed else k.state in ('scheduled', 'discarded') end) over on true
  left join heads h on h.subscription = p.subscription and h.aggregate_type = r.aggregate_type and h.aggregate_id = r.aggregate_id
  left join lateral (
       -- Without the offset, old statistics make the planner read the cursors of all subscriptions each time.
       select * from {schema}.delivery where subscription = p.subscription and partition = r.partition and id = r.id
       offset 0) d on true
 order by r.id desc, s.name
