-- purpose: make the sequence `life` anew if it cannot be read; whether it was
--
-- PostgreSQL copies the file of an unlogged sequence at a promotion, and a standby writes that file at its restartpoints
-- only: promoted before the first one, it has zeros there, which no statement reads or sets back, and so no poll succeeds.
-- Dropping and making it takes owning it, so this runs with the rights of the owner, whom only the roles of workers may
-- ask. Its grants stay. The lock on `meta` is that of one at a time: nobody holds a conflicting one for long.
create or replace function {schema}.life_anew()
returns boolean language plpgsql security definer
set lock_timeout = '3s' set client_min_messages = warning set search_path = pg_catalog, pg_temp as $$
declare
    life   regclass;
    rights aclitem[];
    given  record;
begin
    for attempt in 1 .. 2 loop
        life := to_regclass(format('%I.life', {schema_name}));
        if life is null then
            return false;  -- none before PostgreSQL 15
        end if;
        begin
            perform pg_sequence_last_value(life);
            return false;
        exception when internal_error then
            lock table {schema}.meta in share row exclusive mode;
        end;
    end loop;

    select c.relacl into rights from pg_class c where c.oid = life;
    execute format('drop sequence %s', life);
    execute format('create unlogged sequence %I.life as bigint', {schema_name});
    for given in select a.*, case when a.grantee = 0 then 'public' else a.grantee::regrole::text end as name
                   from aclexplode(rights) a loop
        execute format('grant %s on sequence %I.life to %s', given.privilege_type, {schema_name}, given.name);
    end loop;
    return true;
end
$$;

revoke all on function {schema}.life_anew() from public;
