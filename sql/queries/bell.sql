-- name: sleeps
-- Part of others: whether a worker sleeps. Evaluated in what an INSERT returns, or after it: once the id is drawn, so that
-- a transaction which asked too early has an id that whoever falls asleep can see. A schema without the sequence, and a role
-- that may not read it, ring nobody.
(select case when has_sequence_privilege(bell.sequence, 'SELECT') then pg_sequence_last_value(bell.sequence) end
        - (extract(epoch from clock_timestamp()) * 1000)::bigint
   from (select to_regclass({bell}) as sequence offset 0) as bell) between 1 and 3000

-- name: queue_has_room
-- Part of others: whether a notification may be sent. The queue is one for the whole server, and a session that listens in
-- an open transaction keeps it from being emptied; once it is full every transaction that notifies fails at its COMMIT. At
-- half of it PostgreSQL begins to warn in its log; the other half is for transactions that have rung and are still open.
-- Asking costs 0.1 us, and frees what nobody needs any more: nothing else does that while nobody notifies.
(pg_notification_queue_usage() < 0.5)

-- name: rings
-- Part of others, inline in what an INSERT returns: rings for its partition, if a worker sleeps; whether it rang.
(case when {sleeps}
      then case when {queue_has_room} then pg_notify({channel}, (%(partition)s::smallint)::text) is not null else false end
      else false end)

-- name: rings_many
-- Part of others: rings for these partitions, if a worker sleeps; whether it rang.
case when {sleeps}
     then case when {queue_has_room}
               then (select count(pg_notify({channel}, partition)) from unnest(%(partitions)s::text[]) as given (partition)) > 0
               else false end
     else false end

-- name: ring
-- Rings for events that were copied.
select {rings_many}

-- name: flag_ahead
-- Part of others: the milliseconds by which the flag lies ahead, in the sequence that is named by its oid.
(case when has_sequence_privilege(%(bell)s::oid, 'SELECT') then pg_sequence_last_value(%(bell)s::oid::regclass) end
 - (extract(epoch from now()) * 1000)::bigint)

-- name: bell_found
-- The sequence `bell`, and how many transactions may be prepared. No row where there is none that this role may set.
select found.oid::bigint, current_setting('max_prepared_transactions')::integer
  from (select c.oid::regclass
          from pg_class c
         where c.oid = to_regclass({bell})
               and case when c.relkind = 'S'  -- the order of AND is the planner's
                        then has_sequence_privilege(c.oid, 'SELECT') and has_sequence_privilege(c.oid, 'UPDATE')
                        else false end) as found

-- name: bell_raise
-- Raises the flag for `ahead` milliseconds from now; whether it was up before. It stays up for as long as others have
-- raised it, unless that is no time of ours: a clock was set back. Null, and nothing done, where the server's
-- notification queue is filling up. The sequence is logged, and nobody waits for the disc, or a standby, to have it.
select set_config('synchronous_commit', 'off', true),
       case when {queue_has_room}
            then setval(%(bell)s::oid::regclass,
                        greatest(now + %(ahead)s::bigint, case when up between 1 and 3000 then now + up end)) end,
       coalesce(up between 1 and 3000, false)
  from (select now, pg_sequence_last_value(%(bell)s::oid::regclass) - now as up
          from (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now offset 0) as clock offset 0) as seen

-- name: bell_lower
-- Lowers the flag.
select set_config('synchronous_commit', 'off', true), setval(%(bell)s::oid::regclass, 1)

-- name: bell_say
-- Tells all who listen; false where the server's notification queue is filling up.
select case when {queue_has_room} then pg_notify({channel}, %(payload)s::text) is not null else false end

-- name: bell_listen
-- Hears the rings of this schema from here on.
listen {channel_name}
