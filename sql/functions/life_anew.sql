-- purpose: Create the sequence `life` again if PostgreSQL cannot read it, and return whether that was necessary.
--
-- At a promotion PostgreSQL copies the file of an unlogged sequence. A standby writes that file only at its restartpoints. If
-- the standby is promoted before its first restartpoint, the file contains zeros. Then no statement can read or reset the
-- sequence, and every poll fails.
--
-- Only the owner of the sequence can drop and create it. Therefore the function runs with the rights of the owner, and only
-- the roles of workers may call it. The new sequence gets the grants of the old one.
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
        begin
            perform pg_sequence_last_value(life);
            return false;
        exception when internal_error then
            -- Only one session at a time may create the sequence. Other sessions hold a conflicting lock on `meta` only for a
            -- moment. The second round of the loop tests under this lock whether another session has created the sequence.
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
