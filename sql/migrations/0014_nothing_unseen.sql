-- purpose: functions that name what they read by schema, tell a full notification queue, and take no lock of outsiders
-- breaking: no

-- A discarded record keeps its parked row.
alter table {schema}.parked drop constraint if exists parked_state_check;
alter table {schema}.parked add constraint parked_state_check
    check (state in ('retrying', 'deferred', 'scheduled', 'held', 'dead', 'discarded', 'ready'));
drop function if exists {schema}.discard(text, bigint[]);

-- The check of `publish` takes the aggregate id and the tenant too.
drop function if exists {schema}.publish_problem(text, json, text, json, timestamptz, interval, text);
