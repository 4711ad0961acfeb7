-- partbox sends these scripts around the handlers of a transaction, in addition to its save. Each script takes one round trip.

-- name: effects_session
-- The query returns one row: the statements that set a session back to its present state, and its lock_timeout in milliseconds. A setting
-- with a dotted name that no extension has defined is in no view. For such a setting `reset all` leaves an empty text, unless the start
-- of the session gave it a value.
select concat_ws(
         '; ',
         'reset all',
         'set session authorization ' || quote_ident(session_user),
         'set role ' || case current_setting('role') when 'none' then 'none' else quote_ident(current_setting('role')) end,
         string_agg(format('select set_config(%L, %L, false)', name, setting), '; ')
           filter (where source = 'session' and name not in ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')),
         'close all',
         'discard temp'),
       max(setting) filter (where name = 'lock_timeout')
  from pg_settings

-- name: effects_lifted
-- Other scripts contain these statements. They remove the time limits, because handlers may take long.
set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0

-- name: effects_begun
-- The script returns the id of the transaction. A later script reads by this id whether a handler has committed the transaction (see
-- `effects_fate`).
{effects_lifted}; {savepoint} select pg_current_xact_id()::text

-- name: effects_kept
-- The script runs after an event has succeeded. No setting of the event holds for the next event. The transaction holds locks from now
-- on, so it waits for other locks only briefly.
{set_back}; {effects_lifted}; set local lock_timeout = {patience}

-- name: effects_end
-- The script sets time limits for the save that ends the transaction. The save locks partition rows, for which a bury would wait.
set local statement_timeout = {limit};
set local idle_in_transaction_session_timeout = {limit};
set local lock_timeout = {lock_timeout}

-- name: effects_fate
-- The query returns the status of the transaction `xid`, or an empty text if the server does not know it any more.
select coalesce(pg_xact_status({xid}::text::xid8), '')
