-- name: django_newest
-- The query returns the highest id that was drawn.
select {drawn}

-- name: django_states
-- The query returns the state of records in each subscription, by the primary key of the log.
select s.id, s.subscription, s.status
  from unnest(%(partitions)s::smallint[], %(ids)s::bigint[]) as wanted (partition, id)
  join {schema}.record_status s on s.partition = wanted.partition and s.id = wanted.id
 order by s.id, s.subscription

-- name: django_published
-- The query returns the highest id that this session has drawn. The record that the session has just written has this id or a slightly
-- lower one.
select currval({sequence})

-- name: django_task
-- The query returns a task by its event id. It searches one partition by the primary key of the log, from `id` down to `id` - 1000.
select r.event_type, r.payload, r.created_at, s.status, k.attempts, k.last_error, k.traceback
  from {schema}.record r
  join {schema}.record_status s on s.subscription = %(subscription)s and s.partition = r.partition and s.id = r.id
  left join {schema}.parked k on k.subscription = s.subscription and k.record_id = r.id
 where r.partition = %(partition)s::smallint and r.id between %(id)s::bigint - 1000 and %(id)s::bigint
       and r.event_id = %(event_id)s::uuid and r.aggregate_type = %(aggregate_type)s
