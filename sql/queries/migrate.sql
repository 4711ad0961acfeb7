-- name: migrate_found
-- The query returns whether the schema has a table `meta`, of partbox or of somebody else.
select to_regclass(quote_ident({schema_name}) || '.meta') is not null

-- name: migrate_remains
-- The query returns whether the log exists, for a schema without the table `meta`.
select to_regclass(quote_ident({schema_name}) || '.record') is not null

-- name: migrate_versions
-- The query returns the newest migration in the schema, the newest migration that older programs cannot work with, and whether the schema
-- has only an inbox.
select (select value::int from {schema}.meta where key = 'schema_version'),
       (select value::int from {schema}.meta where key = 'breaking_version'),
       exists (select from {schema}.meta where key = 'inbox_only')

-- name: migrate_is_current
-- The query returns whether the schema is as the last migration left it, and was migrated by the same scripts.
select exists (select from {schema}.meta m
                where m.key = 'migrated' and m.value = %(scripts)s || ' ' || {schema}.schema_state())

-- name: migrate_schemas
-- The query returns the schemas of this database that hold an outbox or only an inbox, by name.
select n.nspname::text
from pg_catalog.pg_namespace n
where exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'meta' and c.relkind = 'r')
  and exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'inbox' and c.relkind = 'r')
order by n.nspname
limit 100

-- name: migrate_holders
-- The query returns the transactions that hold, or may hold, a lock that a migration waits for, in the form of `needed_by`. Such a lock
-- is on any table of the schema, or it is the lock of the first migration of the schema.
with needed as (
    select l.pid, l.virtualtransaction
      from pg_locks l
     where l.granted and l.pid is distinct from pg_backend_pid()
           and l.database = (select d.oid from pg_database d where d.datname = current_database())
           and (l.relation in (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                where n.nspname::text = {schema_name})
                or l.locktype = 'advisory' and l.objsubid = 1
                   and (l.classid::bigint << 32 | l.objid::bigint)
                       = hashtextextended('partbox.migrate ' || {schema_name}, 0))
     group by l.pid, l.virtualtransaction
)
{needed_by}
