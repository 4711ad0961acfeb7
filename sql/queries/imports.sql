-- An import reads a table that is not ours. Its names are not known here, so some of these statements are templates:
-- `{table}`, `{key}` and the like become identifiers of columns that the catalogue has, or literals, or null, each cast
-- here. Only `{where}` is SQL that the operator gave; he could run it anyway, and here it runs in a read-only transaction.

-- name: import_table
-- The table of this name, as SQL reads it: its oid, its names, whether it is one and can be read, and the columns of its primary key.
select c.oid, n.nspname::text, c.relname::text, format('%%I.%%I', n.nspname, c.relname), c.relkind in ('r', 'p', 'v', 'm', 'f'),
       has_any_column_privilege(c.oid, 'select') and has_schema_privilege(n.oid, 'usage'),
       (select array_agg(a.attname::text order by k.place)
          from pg_index i
         cross join unnest(i.indkey) with ordinality as k (attnum, place)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
         where i.indrelid = c.oid and i.indisprimary)
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass(%(table)s)

-- name: import_columns
-- Its columns: how each is read (text, bytes, or else as JSON), and whether it is a whole number. A domain is its type.
select a.attname::text,
       case when base.typname = 'bytea' then 'bytes' when base.typcategory = 'S' then 'text' else 'json' end,
       base.typname in ('int2', 'int4', 'int8')
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  join pg_type base on base.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
 where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum

-- name: import_writers
-- Who has written to the table, or is about to, and has not ended; the oldest first. A prepared transaction has no pid.
select l.pid, coalesce(a.application_name, ''), extract(epoch from clock_timestamp() - a.xact_start)::float8
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
 where l.granted and l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = %(oid)s::oid or l.relation in (select t.relid from pg_partition_tree(%(oid)s::oid::regclass) t))
 order by a.xact_start

-- name: import_patience
-- One statement reads the whole table, and waits for the batches that are written meanwhile. What was imported is as
-- large as the table, whatever its statistics say of an import that has just begun: looked up row by row it took a minute
-- for 12,000 rows.
select set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
       set_config('enable_nestloop', 'off', true)

-- name: import_lock
-- One import of a table at a time: two would interleave their batches, and so events of an aggregate. Held by the
-- transaction that reads.
select pg_try_advisory_xact_lock(hashtext('partbox.import ' || {schema_name}), hashtext(%(source)s))

-- name: import_counts
-- How many rows there are of each status, and how many of them were imported.
select coalesce(({status})::text, 'NULL'), count(*), count(i.key)
  from {table} as source_row
 cross join lateral (
       select substr(keys.list, 2, length(keys.list) - 2) as partbox_key
         from (select jsonb_build_array({key})::text as list) as keys) as source_key
  left join {schema}.imported i on i.source = %(source)s and i.key = source_key.partbox_key
 where ({where}
       )
 group by 1
 order by 1

-- name: import_rows
-- The rows that are not imported yet, in order, each as an event; the key is that of the table as text. What PostgreSQL
-- has as a time and Python has not becomes the nearest; one that has come is none.
select source_key.partbox_key, coalesce(({status})::text, 'NULL') = any (%(failed)s::text[]),
       ({event_type})::text, ({aggregate_type})::text, ({aggregate_id})::text, ({tenant_id})::text,
       to_json({payload_json})::text, ({payload_text})::text, ({payload_bytes})::bytea, ({content_type})::text,
       coalesce(to_json({headers_json})::text, ({headers_text})::text), ({event_id})::text,
       least(greatest(({occurred_at})::timestamptz, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'),
       case when ({available_at})::timestamptz > statement_timestamp()
            then least(({available_at})::timestamptz, '9999-12-30 00:00Z') end,
       ({attempts})::integer, left(({error})::text, %(error_limit)s)
  from {table} as source_row
 cross join lateral (
       select substr(keys.list, 2, length(keys.list) - 2) as partbox_key
         from (select jsonb_build_array({key})::text as list) as keys) as source_key
 where ({where}
       )
       and coalesce(({status})::text, 'NULL') = any (%(wanted)s::text[])
       and not exists (select from {schema}.imported i where i.source = %(source)s and i.key = source_key.partbox_key)
 order by {order}, source_key.partbox_key

-- name: import_note
-- These are imported with this transaction; those that were not before.
insert into {schema}.imported (source, key)
select %(source)s, given.key from unnest(%(keys)s::text[]) as given (key)
    on conflict do nothing
returning key

-- name: import_known
-- Those of the keys that were noted before.
select i.key from {schema}.imported i where i.source = %(source)s and i.key = any (%(keys)s::text[])

-- name: import_moment
-- The database's clock, in microseconds since 1970, and the newest id that was drawn.
select (extract(epoch from clock_timestamp()) * 1000000)::bigint, {schema}.drawn()

-- name: import_dead
-- Events that this transaction has published, with ids above the newest of before, are dead for every subscription that
-- wants their type. Nobody knows their rows yet, so no cursor need be locked; none has passed them either, so their
-- records are available never: a worker that comes to one parks it, and finds it parked.
insert into {schema}.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks,
                             attempts, last_error)
select s.name, r.id, r.partition, r.aggregate_type, r.aggregate_id, r.event_type, 'dead', false, failed.attempts,
       failed.error
  from unnest(%(partitions)s::smallint[], %(event_ids)s::uuid[], %(attempts)s::integer[], %(errors)s::text[])
       as failed (partition, event_id, attempts, error)
  join {schema}.record r on r.partition = failed.partition and r.id > %(after)s and r.event_id = failed.event_id
                            and r.xid = pg_current_xact_id()
 cross join {schema}.subscription s
 where s.type_filters is null or r.event_type = any (s.type_filters)
    on conflict do nothing

-- name: import_present
-- Of these records of an archive, those that are still in the log: by id and event id, for ids may be of another database.
select r.id, r.event_id::text
  from unnest(%(partitions)s::smallint[], %(ids)s::bigint[], %(event_ids)s::text[]) as given (partition, id, event_id)
  join {schema}.record r on r.partition = given.partition and r.id = given.id and r.event_id::text = given.event_id
