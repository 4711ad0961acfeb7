-- name: workspace_drop
-- Leave nothing behind in a user's database.
drop schema {schema} cascade
