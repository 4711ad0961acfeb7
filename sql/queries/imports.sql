-- An import reads a table that does not belong to partbox, so the names of the table and its columns are not known here. Some of these
-- statements are templates. `{table}`, `{key}` and similar placeholders become identifiers of columns that the catalogue has, or
-- literals, or null. Each of them is cast here. Only `{where}` is SQL that the operator gave. The operator could run that SQL anyway, and
-- here it runs in a read-only transaction.

-- name: import_table
-- The query returns the table of this name, as SQL resolves the name: its oid, its names, whether it is a table or view, whether this
-- role can read it, and the columns of its primary key.
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
-- The query returns the columns of the table: the name, how its values are read (`text`, `bytes` or `json`), and whether they are
-- integers. A domain counts as its base type.
select a.attname::text,
       case when base.typname = 'bytea' then 'bytes' when base.typcategory = 'S' then 'text' else 'json' end,
       base.typname in ('int2', 'int4', 'int8')
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  join pg_type base on base.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
 where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum

-- name: import_writers
-- The query returns the open transactions that have written to the table or are about to write, the oldest first: the pid, the name of
-- the application, and the age in seconds. A prepared transaction has no pid.
select l.pid, coalesce(a.application_name, ''), extract(epoch from clock_timestamp() - a.xact_start)::float8
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
 where l.granted and l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = %(oid)s::oid or l.relation in (select t.relid from pg_partition_tree(%(oid)s::oid::regclass) t))
 order by a.xact_start

-- name: import_patience
-- One statement reads the whole table and waits while the batches are written, so it has no time limit. The table `imported` becomes as
-- large as the table that is read, but the statistics do not show this at the beginning of an import. With nested loops, which search for
-- imported rows one by one, 12,000 rows took a minute.
select set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
       set_config('enable_nestloop', 'off', true)

-- name: import_lock
-- Only one import of a table runs at a time. Two would interleave their batches, and so the events of an aggregate. The transaction that
-- reads holds the lock. The query returns false if another import holds it.
select pg_try_advisory_xact_lock(hashtext('partbox.import ' || {schema_name}), hashtext(%(source)s))

-- name: import_counts
-- The query returns each status in alphabetical order, with the number of rows and the number of imported rows.
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
-- The query returns the rows that are not imported yet, in order, each in the form of an event. The first column is the key of the table
-- as text. A time that PostgreSQL can represent and Python cannot becomes the nearest time of Python. An `available_at` in the past
-- becomes null.
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
-- The statement notes that the rows with these keys are imported by this transaction. It returns the keys that were not noted before.
insert into {schema}.imported (source, key)
select %(source)s, given.key from unnest(%(keys)s::text[]) as given (key)
    on conflict do nothing
returning key

-- name: import_known
-- The query returns the keys that were noted before.
select i.key from {schema}.imported i where i.source = %(source)s and i.key = any (%(keys)s::text[])

-- name: import_moment
-- The query returns the database's clock in microseconds since 1970, and the highest id that was drawn.
select (extract(epoch from clock_timestamp()) * 1000000)::bigint, {schema}.drawn()

-- name: import_dead
-- Events that this transaction has published become dead for every subscription that wants their type. Their ids are above `after`, the
-- newest id before the transaction. No other transaction sees the new rows yet, so no cursor needs a lock. No cursor has passed the
-- records either, so they are published with an `available_at` that never comes. A worker that reads such a record tries to park it, and
-- finds it parked.
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
-- The query returns those of the given records of an archive that are still in the log. They match by id and event id, because the ids
-- may come from another database.
select r.id, r.event_id::text
  from unnest(%(partitions)s::smallint[], %(ids)s::bigint[], %(event_ids)s::text[]) as given (partition, id, event_id)
  join {schema}.record r on r.partition = given.partition and r.id = given.id and r.event_id::text = given.event_id
