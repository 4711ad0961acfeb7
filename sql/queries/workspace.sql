-- name: workspace_drop
-- Leave nothing behind in a user's database.
drop schema if exists {schema} cascade

-- name: workspace_found
-- One row if the schema exists already.
select from pg_namespace where nspname = %(schema)s
