-- name: register
-- One instance row a process, in the order of the pids.
with made as (
    insert into {schema}.instance (subscription, node, hostname, pid, version, lease, supervisor)
    select %(subscription)s, %(node)s, %(hostname)s, pid, %(version)s, %(lease)s * interval '1 second', %(supervisor)s
      from unnest(%(pids)s::integer[]) as pid
    returning instance_id, pid
)
select made.* from made
 where (select {schema}.all_written('instance', cardinality(%(pids)s::integer[]), count(*)) from made)

-- name: heartbeat
-- Renew all my processes' rows; what does not come back is gone. See the function. Each with the heartbeat before, which the
-- statement's snapshot still sees, and a time that this one is not older than.
select h.id, i.heartbeat_at, statement_timestamp()
  from {schema}.heartbeat(%(instances)s::uuid[], %(draining)s::boolean[]) as h (id)
  join {schema}.instance i on i.instance_id = h.id

-- name: heartbeat_of_one
-- The same for a node of one process: one row has no order of locks, and takes no function.
with before as materialized (select b.heartbeat_at from {schema}.instance b where b.instance_id = %(instance)s::uuid)
update {schema}.instance i set heartbeat_at = clock_timestamp(), draining = i.draining or %(draining)s::boolean
  from before
 where i.instance_id = %(instance)s::uuid
returning i.instance_id, before.heartbeat_at, statement_timestamp()

-- name: leave
-- This process was told to end: what it runs has no part in that. One row, so there is no order of locks to keep.
update {schema}.instance i set draining = true where i.instance_id = %(instance)s and not i.draining

-- name: note_lifespan
-- This process, whose row is new, is in its lifespan: since when, and that it is leaving, so that nobody plans with it.
update {schema}.instance i
   set draining = true,
       running = json_build_array(json_build_object(
           'lifespan', %(lifespan)s::text,
           'entered', extract(epoch from clock_timestamp())::float8 - %(seconds)s::float8))
 where i.instance_id = %(instance)s

-- name: note_running
-- The handlers of this process that have run for long: how long becomes since when, by this server's clock. Null: none.
-- One row, so there is no order of locks to keep.
update {schema}.instance i
   set running = (
       select json_agg(case when said ? 'seconds' then
                  (said - 'seconds') || jsonb_build_object(
                      'since', extract(epoch from clock_timestamp())::float8 - (said ->> 'seconds')::float8)
                  else said end order by position)
         from jsonb_array_elements(%(running)s::jsonb) with ordinality as each (said, position))
 where i.instance_id = %(instance)s

-- name: note_sinks
-- What the sinks of this process have sent. One row, so there is no order of locks to keep.
update {schema}.instance i set sinks = %(sinks)s::json where i.instance_id = %(instance)s

-- name: note_handled_types
-- The event types that this process handles; it ignores all others.
insert into {schema}.handled_types as h (instance_id, subscription, types)
values (%(instance)s, %(subscription)s, %(types)s::json)
    on conflict (instance_id) do update set at = clock_timestamp(), types = excluded.types

-- name: watch
-- One row about a subscription: the server's clock; a number that changes whenever somebody joins, leaves or drains, and how
-- many they are, on how many nodes; whether a partition has no assignee; whether one has an owner that is gone; and, an
-- array for each column, who is late: unheard of since `since`, or for a quarter of the lease, longer than anybody waits from one
-- heartbeat to the next. No other can be due for burial.
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
-- Everybody of a subscription, with the seconds that are left of each lease.
select i.instance_id, i.node, i.heartbeat_at, i.draining,
       extract(epoch from i.heartbeat_at + i.lease - clock_timestamp())::float8, extract(epoch from i.lease)::float8
  from {schema}.instance i
 where i.subscription = %(subscription)s

-- name: assignees
-- The assignee of every partition, in order; none while the subscription is paused or missing. An error if rows are gone.
select p.assignee
  from {schema}.partition p
  join {schema}.subscription s on s.name = p.subscription and s.paused_at is null
 where p.subscription = %(subscription)s and (select {schema}.all_cursors(%(subscription)s))
 order by p.partition

-- name: bury
-- Delete dead instances and free their partitions; see the function.
select buried, freed from {schema}.bury(%(victims)s::uuid[], %(known_dead)s::boolean)

-- name: plan
-- Put a plan into force if nothing changed since it was decided; see the function.
select {schema}.plan(%(subscription)s, %(members)s::uuid[], %(seen)s::uuid[], %(planned)s::uuid[])

-- name: marker
-- Is this the primary, is it the cluster that the cursors were written in, may I read the sequence; is a witness lost?
-- The cluster: the marker was written by the transaction that it names, or a witness holds that names this marker (see
-- `mark`), among the relations that the row beside it names.
select pg_is_in_recovery(),
       coalesce(mark.marked or mark.own or mark.catalog, false)
       and exists (select from {schema}.meta m
                    where m.key = 'marker_oids'
                          and m.value = m.tableoid::text || ' '
                                        || to_regclass(quote_ident({schema_name}) || '.record_pkey')::oid::text)
       and not exists (select from {schema}.partition p
                        where pg_snapshot_xmax(p.snapshot) > pg_snapshot_xmax(pg_current_snapshot())),
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
-- Note the witnesses anew; see the function.
select {schema}.mark()

-- name: subscribed
-- Does the subscription exist?
select exists (select from {schema}.subscription s where s.name = %(subscription)s)

-- name: untimed
-- No transaction of this session has a limit of its own beside those of its statements.
select set_config('transaction_timeout', '0', false)

-- name: is_planned
-- Whether this session has the settings with which a statement may be prepared.
select (current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
        current_setting('row_security'))
       = ('force_generic_plan', 'off', 'off', 'off')
