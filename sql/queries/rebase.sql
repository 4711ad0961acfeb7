-- A logical copy of a schema speaks of another cluster's transactions: the saved snapshots, and the xid of each record.
-- These statements, one transaction in READ COMMITTED and in this order, make it this cluster's. Each has a snapshot of
-- its own, so that all of them see what had committed before the locks were got.
--
-- One xid a record cannot tell several subscriptions what each has consumed. So what committed late for one of them is
-- parked for that one; then every record that a cursor may still come to gets the xid 3, which every snapshot shows as
-- ended; and each cursor gets a snapshot of this cluster and, as its floor, all that it has passed. While publishers are
-- shut out no id is drawn that is not in the log, so nothing below a cursor will become visible any more.
--
-- Locks: the one of purges, the log against publishers (who may go on to lock partition rows in their transactions, so
-- it comes before those), instance rows by id, partition rows by (subscription, partition).

-- name: rebase_patience
-- The rewriting may take long; a lock may not, for publishers queue behind whoever waits for theirs.
select set_config('statement_timeout', '0', true), set_config('lock_timeout', %(lock)s, true),
       set_config('jit', 'off', true)

-- name: rebase_lock_purge
-- No purge, no new subscription and no replay is at work from here on.
select from {schema}.meta m where m.key = 'lock purge' for update

-- name: rebase_lock_records
-- Wait out who has published, and keep others from it; reading goes on.
lock table {schema}.record in share row exclusive mode

-- name: rebase_lock_instances
-- Every instance, with its heartbeat.
select instance_id, heartbeat_at from {schema}.instance order by instance_id for update

-- name: rebase_lock_partitions
-- Every cursor.
select from {schema}.partition order by subscription, partition for no key update

-- name: rebase_instances
-- Who may be alive: `left` of each lease by the database's clock.
select instance_id, node, pid, subscription, heartbeat_at,
       extract(epoch from heartbeat_at + lease - clock_timestamp())::float8, extract(epoch from lease)::float8
  from {schema}.instance
 order by node, pid

-- name: rebase_holders
-- Who has, or may have, what is waited for.
with needed as (
    select l.pid, l.virtualtransaction
      from pg_locks l
     where l.granted and l.pid is distinct from pg_backend_pid()
           and l.database = (select d.oid from pg_database d where d.datname = current_database())
           and (l.relation in (select t.relid from pg_partition_tree(to_regclass(quote_ident({schema_name}) || '.record')) t)
                and l.mode not in ('AccessShareLock', 'RowShareLock')
                or l.relation in (to_regclass(quote_ident({schema_name}) || '.instance'),
                                  to_regclass(quote_ident({schema_name}) || '.partition'),
                                  to_regclass(quote_ident({schema_name}) || '.meta'))
                   and l.mode <> 'AccessShareLock')
     group by l.pid, l.virtualtransaction
)
{needed_by}

-- name: needed_by
-- Part of others: the transactions of `needed`, the oldest first, each with its database if that is another one. A prepared
-- one has no pid, but a name.
select needed.pid, coalesce(a.application_name, ''), x.gid,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, x.prepared))::float8,
       nullif(coalesce(a.datname, x.database), current_database())::text
  from needed
  left join pg_stat_activity a on a.pid = needed.pid
  left join pg_locks t on needed.pid is null and t.pid is null and t.locktype = 'transactionid'
                          and t.virtualtransaction = needed.virtualtransaction
  left join pg_prepared_xacts x on x.transaction = t.transactionid
 order by coalesce(a.xact_start, x.prepared)

-- name: rebase_park
-- What had not committed when a cursor was saved, for the subscription that is still to get it; how many. What is parked
-- already stays as it is; types that nobody there wants are consumed; what is for later does not block.
with parked as (
    insert into {schema}.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state,
                                 blocks, due_at)
    select c.subscription, r.id, r.partition, r.aggregate_type, r.aggregate_id, r.event_type,
           case when later.on then 'scheduled' else 'ready' end,
           r.aggregate_id is not null and not later.on,
           case when later.on then least(r.available_at, '9999-12-30 00:00Z')
                when r.aggregate_id is null then clock_timestamp() end
      from {schema}.partition c
      join {schema}.subscription s on s.name = c.subscription
      join {schema}.record r on r.partition = c.partition and r.id > least(c.floor_id, c.last_id) and r.id <= c.last_id
     cross join lateral (
           select coalesce(r.available_at > clock_timestamp(), false)
                  or exists (select from {schema}.cancellation x where x.record_id = r.id) as "on") later
     where not pg_visible_in_snapshot(r.xid, c.snapshot)
           and (s.type_filters is null or r.event_type = any (s.type_filters))
        on conflict (subscription, record_id) do nothing
    returning subscription
)
select subscription, count(*) from parked group by subscription

-- name: rebase_records
-- Ended, whatever snapshot is asked: everything that some cursor is still to pass. What all have passed lies below every
-- floor, and nobody looks at its xid.
update {schema}.record r set xid = '3'
  from (select number::smallint as partition, coalesce(min(c.last_id), 0) as last_id
          from generate_series(0, 255) as number
          left join {schema}.partition c on c.partition = number
         group by number) low
 where r.partition = low.partition and r.id > low.last_id and r.xid <> '3'

-- name: rebase_cursors
-- The snapshot is this statement's, and so is younger than the lock. The transaction has written no record that would
-- carry its own xid, which that snapshot may show as ended.
with moved as (
    update {schema}.partition c
       set snapshot = pg_current_snapshot(), floor_id = c.last_id, assignee = null, owner = null,
           epoch = greatest(c.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           parked_version = c.parked_version + 1
    returning c.subscription
)
select subscription, count(*) from moved group by subscription order by subscription

-- name: rebase_forget
-- The processes are the other cluster's.
delete from {schema}.instance

-- name: rebase_notes
-- Nor can it be said of their snapshots what they show.
delete from {schema}.progress_note

-- name: rebase_sequence
-- Raise it to every id that is used anywhere; what it was, and what it is. Logical replication copies no sequence.
select ids.before, case when ids.used > ids.before then setval({sequence}, ids.used) else ids.before end
  from (select {schema}.drawn() as before, {used} as used offset 0) ids

-- name: rebase_unmark
-- A marker is never updated.
delete from {schema}.meta where key in ('marker', 'marker_oids', 'marker_witness', 'tables')

-- name: rebase_mark
-- Its xid is this transaction's. Its value: nothing up to that id is to become visible any more, whatever xids say.
-- Beside it the oids of this table and of the log's key, see the baseline, and of all that holds events. The next session
-- notes the witnesses.
insert into {schema}.meta (key, value)
values ('marker', {schema}.drawn()::text),
       ('marker_oids', to_regclass(quote_ident({schema_name}) || '.meta')::oid::text || ' '
                       || to_regclass(quote_ident({schema_name}) || '.record_pkey')::oid::text),
       ('tables', {schema}.tables_now())
