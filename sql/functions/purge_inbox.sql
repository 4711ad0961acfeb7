-- purpose: Run `purge_rows` for the table inbox, for programs of schema version 14, which know only this function.
create or replace function {schema}.purge_inbox(retain float8, batch integer, place bigint[], dry_run boolean)
returns table (gone bigint, onward bigint[]) language sql set search_path = pg_catalog, pg_temp as $$
    select r.gone, r.onward from {schema}.purge_rows('inbox', retain, batch, place, dry_run) r
$$;
