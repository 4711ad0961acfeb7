-- purpose: Run `purge_rows` for the table idempotency, for programs of schema version 14, which know only this function.
create or replace function {schema}.purge_keys(retain float8, batch integer, place bigint[], dry_run boolean)
returns table (gone bigint, onward bigint[]) language sql set search_path = pg_catalog, pg_temp as $$
    select r.gone, r.onward from {schema}.purge_rows('idempotency', retain, batch, place, dry_run) r
$$;
