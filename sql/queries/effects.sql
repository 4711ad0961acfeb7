-- What partbox sends around the handlers of a transaction, beside its save. Each is a script, which takes one round trip.

-- name: effects_session
-- The statements that set a session back to what it is now, and its lock_timeout (ms). Names with a dot that no extension
-- has defined stand in no view: `reset all` leaves them empty, unless the start of the session had a value for them.
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
-- Handlers may take their time.
set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0

-- name: effects_begun
-- By its id it is asked later whether a handler has committed it.
{effects_lifted}; {savepoint} select pg_current_xact_id()::text

-- name: effects_kept
-- Nothing that the event has set holds for the next one. Locks are held from now on, so none is waited for long.
{set_back}; {effects_lifted}; set local lock_timeout = {patience}

-- name: effects_end
-- The save that ends it may not: it locks partition rows, which a bury would wait for.
set local statement_timeout = {limit};
set local idle_in_transaction_session_timeout = {limit};
set local lock_timeout = {lock_timeout}

-- name: effects_fate
-- What became of the transaction of this id.
select coalesce(pg_xact_status({xid}::text::xid8), '')
