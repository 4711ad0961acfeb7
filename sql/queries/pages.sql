-- name: page_pending
-- The query returns records that are not consumed, in the order of their ids. Of each partition, at most a page is read.
select r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.partition,
       least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'), 'pending', 0, null
  from {schema}.partition c
 cross join lateral (
       -- A long snapshot is stored out of line. It is read once here, and not again for each record.
       select case when c.floor_id < c.last_id then c.snapshot::text::pg_snapshot end as snapshot offset 0) saved
 cross join lateral (
       (select id, event_id, event_type, aggregate_type, aggregate_id, partition, created_at
          from {schema}.record
         where partition = c.partition and id > greatest(least(c.floor_id, c.last_id), %(after)s) and id <= c.last_id
               and not pg_visible_in_snapshot(xid, saved.snapshot)
         order by id limit %(limit)s)
       union all
       (select id, event_id, event_type, aggregate_type, aggregate_id, partition, created_at
          from {schema}.record
         where partition = c.partition and id > greatest(c.last_id, %(after)s)
         order by id limit %(limit)s)) r
 where c.subscription = %(subscription)s
 order by r.id limit %(limit)s

-- name: page_parked
-- The query returns parked records in the given states, in the order of their ids.
select k.record_id, r.event_id, k.event_type, k.aggregate_type, k.aggregate_id, k.partition, r.created_at,
       k.state, k.attempts, k.last_error
  from (select record_id, event_type, aggregate_type, aggregate_id, partition, state, attempts, last_error
          from {schema}.parked
         where subscription = %(subscription)s and record_id > %(after)s and state = any (%(states)s)
         order by record_id limit %(limit)s) k
  left join lateral (
       select event_id, least(greatest(created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') as created_at
         from {schema}.record where partition = k.partition and id = k.record_id limit 1
       ) r on true
 order by k.record_id

-- name: page_completed
-- The query returns records that are consumed and not parked, in the order of their ids. Of each partition, at most a page is read.
select r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.partition,
       least(greatest(r.created_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'), 'completed', 0, null
  from {schema}.partition c
 cross join lateral (
       select id, event_id, event_type, aggregate_type, aggregate_id, partition, created_at
         from {schema}.record
        where partition = c.partition and id > %(after)s and id <= c.last_id
              and (id <= c.floor_id or pg_visible_in_snapshot(xid, c.snapshot))
              and not exists (select from {schema}.parked k
                               where k.subscription = %(subscription)s and k.record_id = record.id)
              and not exists (select from {schema}.spill w
                               where w.subscription = c.subscription and w.partition = c.partition and w.from_id <= record.id
                                     and w.aggregate_type = record.aggregate_type and w.aggregate_id = record.aggregate_id)
        order by id limit %(limit)s) r
 where c.subscription = %(subscription)s
 order by r.id limit %(limit)s
