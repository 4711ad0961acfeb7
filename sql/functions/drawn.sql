-- purpose: Return the last record id drawn so far; raise an error if the role may not read the sequence.
--
-- PostgreSQL 18 returns null to a role without SELECT on the sequence, as it does before the first id is drawn. A null that
-- is mistaken for "no id yet" would hide every record.
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
