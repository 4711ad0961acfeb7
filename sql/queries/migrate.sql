-- name: migrate_found
-- whether partbox, or somebody else, has a table meta there
select to_regclass(quote_ident({schema_name}) || '.meta') is not null

-- name: migrate_versions
-- the newest migration in the schema, the newest that older programs cannot work with, and whether it is but an inbox
select (select value::int from {schema}.meta where key = 'schema_version'),
       (select value::int from {schema}.meta where key = 'breaking_version'),
       exists (select from {schema}.meta where key = 'inbox_only')
