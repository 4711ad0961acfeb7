-- name: workspace_drop
-- The statement leaves nothing behind in a user's database.
drop schema if exists {schema} cascade

-- name: workspace_found
-- The query returns one row if the schema exists already.
select from pg_namespace where nspname = %(schema)s
