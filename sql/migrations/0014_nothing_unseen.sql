-- purpose: functions that name what they read by schema, tell a full notification queue, and take no lock of outsiders
-- breaking: no

-- A discarded record keeps its parked row.
alter table {schema}.parked drop constraint if exists parked_state_check;
alter table {schema}.parked add constraint parked_state_check
    check (state in ('retrying', 'deferred', 'scheduled', 'held', 'dead', 'discarded', 'ready'));
drop function if exists {schema}.discard(text, bigint[]);

-- The check of `publish` takes the aggregate id and the tenant too.
drop function if exists {schema}.publish_problem(text, json, text, json, timestamptz, interval, text);

-- `bell` is logged from here on. A standby that is promoted before its first restartpoint after an unlogged sequence was made
-- cannot read that one ("bad magic number"), and every publish reads this one. Setting it now writes some 100 bytes of WAL
-- and takes a transaction id, about once a second while workers sleep, and nobody waits for the disc to have it. What cannot
-- be read already is made anew. `life` must not outlive a crash, so it stays unlogged: see the function life_anew.
do $$
begin
    if to_regclass({bell}) is not null then
        execute format('alter sequence %I.bell set logged', {schema_name});
    end if;
exception when internal_error then
    execute format('drop sequence %I.bell', {schema_name});
    execute format('create sequence %I.bell as bigint', {schema_name});
end
$$;

-- Who archives locks this: see `archive_lock` in sql/queries/archive.sql.
create or replace view {schema}.archiving as select 'locked by who archives'::text as purpose;
