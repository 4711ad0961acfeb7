-- purpose: opens every migration; the lock ends with the transaction, also behind a pooler

set transaction isolation level read committed, read write;
set local client_min_messages = warning;
-- Functions may name each other, whatever the order in which they are replaced.
set local check_function_bodies = off;
set local jit = off;
set local partbox.migrating = 'on';
select pg_advisory_xact_lock(hashtextextended('partbox.migrate ' || {schema_name}, 0));
