-- purpose: the record ids drawn so far; an error for a role that may not know
--
-- PostgreSQL 18 answers null to a role without SELECT on the sequence, as it does before the first id is drawn: taken for
-- "none yet", it would hide every record.
create or replace function {schema}.drawn() returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    id bigint := {drawn};
begin
    if id is null then
        raise exception 'partbox: permission denied for sequence record_id_seq of schema %', {schema_name}
            using errcode = 'insufficient_privilege', hint = 'Grant select on it to this role.';
    end if;
    return id;
end
$$;
