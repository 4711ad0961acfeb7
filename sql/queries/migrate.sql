-- name: migrate_found
-- whether partbox, or somebody else, has a table meta there
select to_regclass(quote_ident({schema_name}) || '.meta') is not null

-- name: migrate_remains
-- Whether the log is there, of a schema whose table meta is not.
select to_regclass(quote_ident({schema_name}) || '.record') is not null

-- name: migrate_versions
-- the newest migration in the schema, the newest that older programs cannot work with, and whether it is but an inbox
select (select value::int from {schema}.meta where key = 'schema_version'),
       (select value::int from {schema}.meta where key = 'breaking_version'),
       exists (select from {schema}.meta where key = 'inbox_only')

-- name: migrate_schemas
-- the schemas of this database that hold an outbox, or nothing but an inbox
select n.nspname::text
from pg_catalog.pg_namespace n
where exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'meta' and c.relkind = 'r')
  and exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'inbox' and c.relkind = 'r')
order by n.nspname
limit 100

-- name: migrate_holders
-- Who has, or may have, what a migration waits for: a lock on anything of the schema, or that of its first migration.
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
