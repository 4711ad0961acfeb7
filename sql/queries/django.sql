-- name: django_newest
-- The highest id that was given out.
select {drawn}

-- name: django_published
-- The highest id that this session has drawn: that of the record which it has just written, or a little higher.
select currval({sequence})

-- name: django_task
-- A task by its event, looked for in its partition at and a little below an id: by the primary key of the log.
select r.event_type, r.payload, r.created_at, s.status, k.attempts, k.last_error, k.traceback
  from {schema}.record r
  join {schema}.record_status s on s.subscription = %(subscription)s and s.partition = r.partition and s.id = r.id
  left join {schema}.parked k on k.subscription = s.subscription and k.record_id = r.id
 where r.partition = %(partition)s::smallint and r.id between %(id)s::bigint - 1000 and %(id)s::bigint
       and r.event_id = %(event_id)s::uuid and r.aggregate_type = %(aggregate_type)s
