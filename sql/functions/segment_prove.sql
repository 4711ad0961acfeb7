-- purpose: Search the default segment for ids that its constraint keeps out. Publishers and polls go on meanwhile.
--
-- The search may take minutes, so the caller lifts the statement timeout. The statement waits for an autovacuum of the same
-- table.
create or replace function {schema}.segment_prove()
returns void language plpgsql security definer
set lock_timeout = '5s' set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    execute format('alter table %I.%I validate constraint segment_proof', {schema_name},
                   (select s.name from {schema}.segment_ranges() s where s.lower is null));
end
$$;

revoke all on function {schema}.segment_prove() from public;
