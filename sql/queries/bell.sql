-- name: sleeps
-- Other queries contain this expression. It is true if a worker sleeps: the flag lies between 1 and 3000 milliseconds ahead. The
-- expression is evaluated after the id of the record is drawn, in the RETURNING clause of the INSERT or behind the INSERT. If a
-- transaction reads the flag too early, a worker that is about to sleep can therefore see the id that this transaction has drawn. The
-- expression is not true if the schema has no sequence `bell` or the role may not read the sequence.
-- The flag is the value of a sequence, because every transaction sees the present value of a sequence. A row would be
-- read as of the publisher's snapshot, which may be older than the flag.
(select case when has_sequence_privilege(bell.sequence, 'SELECT') then pg_sequence_last_value(bell.sequence) end
        - (extract(epoch from clock_timestamp()) * 1000)::bigint
   from (select to_regclass({bell}) as sequence offset 0) as bell) between 1 and 3000

-- name: queue_has_room
-- Other queries contain this expression. It is true if a notification may be sent. The whole server has one queue for notifications, and
-- a session that listens in an open transaction keeps the queue from being emptied: before PostgreSQL 19 at once, from 19 on once it has
-- an unread notification of its own channels. Once the queue is full, every transaction that notifies fails at its COMMIT. When the queue
-- is half full, PostgreSQL begins to warn in its log. The other half is left for transactions that have notified and are still open. The
-- function call costs 0.1 us. It also frees the entries that nobody needs any more, which nothing else does while nobody notifies.
(pg_notification_queue_usage() < 0.5)

-- name: rings
-- Other queries contain this expression in the RETURNING clause of an INSERT. It sends notifications with the partition of the record if a
-- worker sleeps: to the channel of all workers, and to that of the workers whose subscription may want this type. It is true if they were
-- sent.
(case when {sleeps}
      then case when {queue_has_room}
                then row(pg_notify({channel}, (%(partition)s::smallint)::text),
                         pg_notify({type_channels} || (hashtext(%(event_type)s::text) & 15), (%(partition)s::smallint)::text))
                     is not null
                else false end
      else false end)

-- name: rings_many
-- Other queries contain this expression. It sends a notification for each of the given partitions if a worker sleeps, whatever types the
-- subscription of the worker wants. It is true if notifications were sent.
case when {sleeps}
     then case when {queue_has_room}
               then (select count(pg_notify(channel, partition))
                       from unnest(%(partitions)s::text[]) as given (partition),
                            (values ({channel}), ({type_channels} || '*')) as told (channel)) > 0
               else false end
     else false end

-- name: ring
-- The query sends the notifications for events that were copied, if a worker sleeps. It returns whether it sent any.
select {rings_many}

-- name: flag_ahead
-- Other queries contain this expression. It is the number of milliseconds by which the flag lies ahead of the clock. The parameter `bell`
-- is the oid of the sequence.
(case when has_sequence_privilege(%(bell)s::oid, 'SELECT') then pg_sequence_last_value(%(bell)s::oid::regclass) end
 - (extract(epoch from now()) * 1000)::bigint)

-- name: bell_found
-- The query returns the oid of the sequence `bell` and the number of transactions that may be prepared. It returns no row if there is no
-- such sequence or this role may not set the sequence.
select found.oid::bigint, current_setting('max_prepared_transactions')::integer
  from (select c.oid::regclass
          from pg_class c
         where c.oid = to_regclass({bell})
               -- The CASE fixes the order of the tests. The planner may reorder the operands of AND.
               and case when c.relkind = 'S'
                        then has_sequence_privilege(c.oid, 'SELECT') and has_sequence_privilege(c.oid, 'UPDATE')
                        else false end) as found

-- name: bell_raise
-- The statement raises the flag to `ahead` milliseconds from now. If other workers have raised the flag further, it does not change,
-- unless it lies more than 3000 milliseconds ahead. Then a clock was set back. The second column is the new value of the flag. It is
-- null, and nothing is done, if the server's notification queue is filling up. The third column says whether the flag was up before. The
-- new value is written to the WAL, but nobody waits until the disk or a standby has it.
select set_config('synchronous_commit', 'off', true),
       case when {queue_has_room}
            then setval(%(bell)s::oid::regclass,
                        greatest(now + %(ahead)s::bigint, case when up between 1 and 3000 then now + up end)) end,
       coalesce(up between 1 and 3000, false)
  from (select now, pg_sequence_last_value(%(bell)s::oid::regclass) - now as up
          from (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now offset 0) as clock offset 0) as seen

-- name: bell_lower
-- The statement lowers the flag. Like `bell_raise`, it does not wait for the disk.
select set_config('synchronous_commit', 'off', true), setval(%(bell)s::oid::regclass, 1)

-- name: bell_say
-- The query notifies all workers that listen. It returns false, and notifies nobody, if the server's notification queue is filling up.
select case when {queue_has_room}
            then row(pg_notify({channel}, %(payload)s::text), pg_notify({type_channels} || '*', %(payload)s::text)) is not null
            else false end

-- name: bell_channels
-- The query returns the channels for a worker whose subscription wants some types: those of the types, and the one for notifications
-- that are not about one type. A channel serves a sixteenth of all types, so the worker may be woken for another type.
select {type_channels} || '*'
union
select {type_channels} || (hashtext(type) & 15) from unnest(%(types)s::text[]) as wanted (type)

-- name: bell_listen
-- From now on, this session receives the notifications of the channel.
listen {heard}
