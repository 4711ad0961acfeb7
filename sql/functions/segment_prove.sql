-- purpose: search the default segment for what its constraint keeps out; publishers and polls go on meanwhile
--
-- It may take minutes, so the caller lifts the limit of a statement. An autovacuum of the same table is waited for.
create or replace function {schema}.segment_prove()
returns void language plpgsql security definer
set lock_timeout = '5s' set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    execute format('alter table %I.%I validate constraint segment_proof', {schema_name},
                   (select s.name from {schema}.segment_ranges() s where s.lower is null));
end
$$;

revoke all on function {schema}.segment_prove() from public;
