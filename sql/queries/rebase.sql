-- A logical copy of a schema refers to transactions of another cluster, in the saved snapshots and in the xid of each record. These
-- statements make the copy belong to this cluster. They run in one READ COMMITTED transaction and in this order. Each statement has a
-- snapshot of its own, so all of them see everything that had committed before the locks were acquired.
--
-- A record has a single xid, which cannot say of several subscriptions which of them have consumed the record. So a record that committed
-- late for a subscription is parked for that subscription. Then every record that a cursor may still reach gets the xid 3, which every
-- snapshot shows as ended. Each cursor gets a snapshot of this cluster and, as its floor, the last id that it has passed. While
-- publishers are shut out, no id is drawn that is not in the log. So nothing below a cursor becomes visible any more.
--
-- The locks are taken in this order: the lock of purges, the log (against publishers), instance rows by id, and partition rows by
-- (subscription, partition). The log comes before the rows because publishers may lock partition rows later in their transactions.

-- name: rebase_patience
-- The rewriting may take long. The wait for a lock may not, because publishers queue behind the transaction that waits.
select set_config('statement_timeout', '0', true), set_config('lock_timeout', %(lock)s, true),
       set_config('jit', 'off', true)

-- name: rebase_lock_purge
-- From here on no purge runs, no subscription is created, and nothing is replayed.
select from {schema}.meta m where m.key = 'lock purge' for update

-- name: rebase_lock_records
-- The statement waits for the end of every transaction that has published, and keeps others from publishing. Reading continues.
lock table {schema}.record in share row exclusive mode

-- name: rebase_lock_instances
-- The query locks every instance, by id, and returns its heartbeat.
select instance_id, heartbeat_at from {schema}.instance order by instance_id for update

-- name: rebase_lock_partitions
-- The query locks every cursor, by subscription and partition.
select from {schema}.partition order by subscription, partition for no key update

-- name: rebase_instances
-- The query returns the processes that may be alive, by node and pid, with the seconds that are left of each lease by the database's
-- clock and the whole lease in seconds.
select instance_id, node, pid, subscription, heartbeat_at,
       extract(epoch from heartbeat_at + lease - clock_timestamp())::float8, extract(epoch from lease)::float8
  from {schema}.instance
 order by node, pid

-- name: rebase_holders
-- The query returns the transactions that hold, or may hold, a lock that the rebase waits for, in the form of `needed_by`.
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
-- Other queries contain this query. It returns the transactions in `needed`, the oldest first: the pid, the name of the application, the
-- name of a prepared transaction, the age in seconds, and the database if it is another one. A prepared transaction has no pid.
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
-- The statement parks the records that had not committed when a cursor was saved, for the subscription that has not received them. It
-- returns their number by subscription. A row that is parked already does not change. A type that the subscription does not want counts
-- as consumed. A record for a later time does not block.
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
-- Every record that some cursor has not passed gets an xid that counts as ended in every snapshot. A record that all cursors have passed
-- lies below every floor, where nobody reads its xid.
update {schema}.record r set xid = '3'
  from (select number::smallint as partition, coalesce(min(c.last_id), 0) as last_id
          from generate_series(0, 255) as number
          left join {schema}.partition c on c.partition = number
         group by number) low
 where r.partition = low.partition and r.id > low.last_id and r.xid <> '3'

-- name: rebase_cursors
-- The snapshot belongs to this statement, and so is younger than the lock. The snapshot may show the xid of this transaction as ended,
-- but the transaction has written no record with that xid. The statement returns the number of cursors by subscription.
with moved as (
    update {schema}.partition c
       set snapshot = pg_current_snapshot(), floor_id = c.last_id, assignee = null, owner = null,
           epoch = greatest(c.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           parked_version = c.parked_version + 1
    returning c.subscription
)
select subscription, count(*) from moved group by subscription order by subscription

-- name: rebase_forget
-- The statement deletes all processes, because they belong to the other cluster.
delete from {schema}.instance

-- name: rebase_notes
-- The statement deletes all notes, because their snapshots belong to the other cluster, and nobody knows which records those show.
delete from {schema}.progress_note

-- name: rebase_sequence
-- The statement raises the sequence to the greatest id that is used anywhere, because logical replication copies no sequence. It returns
-- the value before and after.
select ids.before, case when ids.used > ids.before then setval({sequence}, ids.used) else ids.before end
  from (select {schema}.drawn() as before, {used} as used offset 0) ids

-- name: rebase_unmark
-- A marker is never updated. It is deleted and written again.
delete from {schema}.meta where key in ('marker', 'marker_oids', 'marker_witness', 'tables')

-- name: rebase_mark
-- The xid of the marker is the id of this transaction. The value of the marker is an id: no record up to this id becomes visible any
-- more, whatever the xids say. Beside the marker are the oids of `meta` and of the key of the log (see the migration 0014_baseline), and
-- the oids of all tables that hold events. The next session notes the witnesses.
insert into {schema}.meta (key, value)
values ('marker', {schema}.drawn()::text),
       ('marker_oids', to_regclass(quote_ident({schema_name}) || '.meta')::oid::text || ' '
                       || to_regclass(quote_ident({schema_name}) || '.record_pkey')::oid::text),
       ('tables', {schema}.tables_now())
