-- name: register
-- The statement inserts one instance row for each process, in the order of the pids. It returns the id and the pid of each.
with made as (
    insert into {schema}.instance (subscription, node, hostname, pid, version, lease, supervisor, reads_spills)
    select %(subscription)s, %(node)s, %(hostname)s, pid, %(version)s, %(lease)s * interval '1 second', %(supervisor)s, true
      from unnest(%(pids)s::integer[]) as pid
    returning instance_id, pid
)
select made.* from made
 where (select {schema}.all_written('instance', cardinality(%(pids)s::integer[]), count(*)) from made)

-- name: strays
-- The query returns the instances of this start of a node that the node does not know. Their registration arrived, and its answer was lost.
select i.instance_id from {schema}.instance i
 where i.supervisor = %(supervisor)s and i.instance_id <> all (%(known)s::uuid[])

-- name: heartbeat
-- The statement renews the rows of all given processes; see the function `heartbeat`. A row that is not returned is gone. Each returned
-- row has the heartbeat before, which the snapshot of the statement still sees, and a time at or before the new heartbeat.
select h.id, i.heartbeat_at, statement_timestamp()
  from {schema}.heartbeat(%(instances)s::uuid[], %(draining)s::boolean[]) as h (id)
  join {schema}.instance i on i.instance_id = h.id

-- name: heartbeat_of_one
-- The statement does the same as `heartbeat` for a node of one process. A single row needs no order of locks, so no function is called.
with before as materialized (select b.heartbeat_at from {schema}.instance b where b.instance_id = %(instance)s::uuid)
update {schema}.instance i set heartbeat_at = clock_timestamp(), draining = i.draining or %(draining)s::boolean
  from before
 where i.instance_id = %(instance)s::uuid
returning i.instance_id, before.heartbeat_at, statement_timestamp()

-- name: leave
-- The statement marks this process as draining. The process was ordered to end, so its handlers are not to blame for its end. A single
-- row needs no order of locks.
update {schema}.instance i set draining = true where i.instance_id = %(instance)s and not i.draining

-- name: note_lifespan
-- The statement notes that this process, whose row is new, is in its lifespan, and since when. `draining` keeps others from planning with
-- the process.
update {schema}.instance i
   set draining = true,
       running = json_build_array(json_build_object(
           'lifespan', %(lifespan)s::text,
           'entered', extract(epoch from clock_timestamp())::float8 - %(seconds)s::float8))
 where i.instance_id = %(instance)s

-- name: note_running
-- The statement notes the handlers of this process that have run for long, or null if there are none. The age `seconds` becomes the start
-- time `since` (Unix time) by the server's clock. A single row needs no order of locks.
update {schema}.instance i
   set running = (
       select json_agg(case when said ? 'seconds' then
                  (said - 'seconds') || jsonb_build_object(
                      'since', extract(epoch from clock_timestamp())::float8 - (said ->> 'seconds')::float8)
                  else said end order by position)
         from jsonb_array_elements(%(running)s::jsonb) with ordinality as each (said, position))
 where i.instance_id = %(instance)s

-- name: note_sinks
-- The statement notes the traffic of this process with its sinks. A single row needs no order of locks.
update {schema}.instance i set sinks = %(sinks)s::json where i.instance_id = %(instance)s

-- name: note_handled_types
-- The statement notes the event types that this process handles. The process ignores all other types.
insert into {schema}.handled_types as h (instance_id, subscription, types)
values (%(instance)s, %(subscription)s, %(types)s::json)
    on conflict (instance_id) do update set at = clock_timestamp(), types = excluded.types

-- name: watch
-- The query returns one row about a subscription: the server's clock; a number that changes whenever an instance joins, leaves or drains;
-- the number of instances and of nodes; whether a partition has no assignee; whether a partition has an owner that is gone; and one array
-- for each column of the late instances. An instance is late if it has sent no heartbeat after `since`, or for a quarter of its lease,
-- which is longer than the time between two heartbeats. No other instance can be due for a bury.
with here as materialized (
    select i.instance_id, i.node, i.heartbeat_at, i.draining, i.lease, i.supervisor
      from {schema}.instance i
     where i.subscription = %(subscription)s
)
select now(), seen.shape, seen.members, seen.nodes, held.unassigned, held.orphaned,
       seen.ids, seen.names, seen.heard, seen.draining, seen.rest, seen.leases
  from (select coalesce(bit_xor(uuid_hash_extended(h.instance_id, h.draining::integer)), 0) as shape,
               count(*) as members, count(distinct h.supervisor) as nodes,
               array_agg(h.instance_id) filter (where late) as ids, array_agg(h.node) filter (where late) as names,
               array_agg(h.heartbeat_at) filter (where late) as heard, array_agg(h.draining) filter (where late) as draining,
               array_agg(extract(epoch from h.heartbeat_at + h.lease - clock_timestamp())::float8)
                   filter (where late) as rest,
               array_agg(extract(epoch from h.lease)::float8) filter (where late) as leases
          from (select *, heartbeat_at <= greatest(%(since)s::timestamptz, clock_timestamp() - lease / 4) as late
                  from here) as h
       ) as seen,
       (select coalesce(bool_or(p.assignee is null), true) as unassigned,
               coalesce(bool_or(p.owner not in (select h.instance_id from here h)), false) as orphaned
          from {schema}.partition p
         where p.subscription = %(subscription)s) as held

-- name: members
-- The query returns all instances of a subscription, with the seconds that are left of each lease and the whole lease in seconds.
select i.instance_id, i.node, i.heartbeat_at, i.draining,
       extract(epoch from i.heartbeat_at + i.lease - clock_timestamp())::float8, extract(epoch from i.lease)::float8
  from {schema}.instance i
 where i.subscription = %(subscription)s

-- name: assignees
-- The query returns the assignee of every partition, in the order of partitions. It returns no rows while the subscription is paused or
-- if it does not exist. It fails if rows of `partition` are missing.
select p.assignee
  from {schema}.partition p
  join {schema}.subscription s on s.name = p.subscription and s.paused_at is null
 where p.subscription = %(subscription)s and (select {schema}.all_cursors(%(subscription)s))
 order by p.partition

-- name: bury
-- The query deletes dead instances and frees their partitions; see the function `bury`.
select buried, freed from {schema}.bury(%(victims)s::uuid[], %(known_dead)s::boolean)

-- name: plan
-- The query puts a plan into force if nothing has changed since the plan was made; see the function `plan`.
select {schema}.plan(%(subscription)s, %(members)s::uuid[], %(seen)s::uuid[], %(planned)s::uuid[])

-- name: marker
-- The query returns one row: whether the server is a standby, whether the cursors were written in this cluster, whether this role may
-- read the id sequence, and whether a witness is lost.
-- The cluster is the same if the marker was written by the transaction that it names, or if a witness that names this marker still holds
-- (see the function `mark`). In addition, `meta` and the key of the log must have the oids in the row `marker_oids`, and no cursor may
-- have a snapshot that is ahead of this cluster.
select pg_is_in_recovery(),
       coalesce(mark.marked or mark.own or mark.catalog, false)
       and exists (select from {schema}.meta m
                    where m.key = 'marker_oids'
                          and m.value = m.tableoid::text || ' '
                                        || to_regclass(quote_ident({schema_name}) || '.record_pkey')::oid::text)
       and not exists (select from {schema}.partition p
                        where pg_snapshot_xmax(p.snapshot) > (select pg_snapshot_xmax(pg_current_snapshot()))),
       has_sequence_privilege({sequence}, 'SELECT') or has_sequence_privilege({sequence}, 'USAGE'),
       not coalesce(mark.fresh, false)
  from (values (true)) as always
  left join (select m.xmin = m.xid::xid as marked,
                    s.value like m.xid || ' %% ' || s.xmin || ' ' || m.xmin as own,
                    s.value like m.xid || ' ' || a.xmin || ' %%' and s.xmin = m.xmin as catalog,
                    s.value = concat_ws(' ', m.xid, a.xmin, s.xmin, m.xmin) as fresh
               from {schema}.meta m
               join pg_attribute a on a.attrelid = m.tableoid and a.attname = 'xid'
               left join {schema}.meta s on s.key = 'marker_witness'
              where m.key = 'marker') mark on true

-- name: mark
-- The query notes the witnesses again; see the function `mark`.
select {schema}.mark()

-- name: subscribed
-- The query returns whether the subscription exists.
select exists (select from {schema}.subscription s where s.name = %(subscription)s)

-- name: untimed
-- The transactions of this session have no time limit of their own. Their statements have one.
select set_config('transaction_timeout', '0', false)

-- name: is_planned
-- The query returns whether this session has the settings that are needed to prepare statements.
select (current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
        current_setting('row_security'))
       = ('force_generic_plan', 'off', 'off', 'off')
