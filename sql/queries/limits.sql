-- name: limit_set
-- The statement sets the given bounds and does not change the others, while the subscription exists. A notification makes workers read
-- the bounds at once. Nothing is written if the bounds are already so.
insert into {schema}.handler_limit as l (subscription, handler, rate, at_once, changed_by)
select s.name, %(handler)s, %(rate)s::float8, %(at_once)s::float8, %(who)s::text || ' as ' || session_user::text
  from {schema}.subscription s
 where s.name = %(subscription)s
   for key share
    on conflict (subscription, handler) do update
   set rate = coalesce(excluded.rate, l.rate), at_once = coalesce(excluded.at_once, l.at_once),
       changed_at = clock_timestamp(), changed_by = excluded.changed_by
 where (l.rate, l.at_once) is distinct from (coalesce(excluded.rate, l.rate), coalesce(excluded.at_once, l.at_once))
returning ({schema}.tell('changed ' || subscription) is not null)::integer as changed

-- name: limit_reset
-- The bounds that the handler declares hold again. A notification makes workers read the bounds at once.
delete from {schema}.handler_limit
 where subscription = %(subscription)s and handler = %(handler)s
returning ({schema}.tell('changed ' || subscription) is not null)::integer as changed

-- name: limit_set_pause
-- The statement pauses a value of a handler, an event type or a tenant, while the subscription exists. A notification makes workers read
-- it at once. Nothing is written if it is paused already.
insert into {schema}.pause (subscription, kind, handler, value, changed_by)
select s.name, %(kind)s, %(handler)s, %(value)s, %(who)s::text || ' as ' || session_user::text
  from {schema}.subscription s
 where s.name = %(subscription)s
   for key share
    on conflict do nothing
returning ({schema}.tell('changed ' || subscription) is not null)::integer as changed

-- name: limit_reset_pause
-- A paused value, event type or tenant goes on. A notification makes workers read it at once.
delete from {schema}.pause
 where subscription = %(subscription)s and kind = %(kind)s and handler = %(handler)s and value = %(value)s
returning ({schema}.tell('changed ' || subscription) is not null)::integer as changed

-- name: note_limits
-- The statement notes the limits that this process keeps, the events that wait for them, and the time: those of handlers as `kept`, and
-- paused values and open circuits as `held`, which an older program does not read. A single row needs no order of locks.
update {schema}.instance i
   set limits = json_build_object('at', extract(epoch from clock_timestamp()), 'kept', %(limits)s::json, 'held', %(held)s::json)
 where i.instance_id = %(instance)s
