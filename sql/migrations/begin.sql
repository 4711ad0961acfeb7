-- purpose: opens every migration; the lock ends with the transaction, also behind a pooler

set transaction isolation level read committed, read write;
set local client_min_messages = warning;
-- Functions may name each other, whatever the order in which they are replaced.
set local check_function_bodies = off;
set local jit = off;
set local partbox.migrating = 'on';
-- Publishers queue behind whoever waits to lock the log: not for longer than this. Whoever runs it tries again.
set local lock_timeout = '2s';
-- One migration at a time: by a row of the schema, and by an advisory lock, which anybody could hold, only where there is none.
do $$
begin
    if to_regclass(quote_ident({schema_name}) || '.meta') is null then
        perform pg_advisory_xact_lock(hashtextextended('partbox.migrate ' || {schema_name}, 0));
    end if;
    if exists (select from pg_attribute a
                where a.attrelid = to_regclass(quote_ident({schema_name}) || '.meta') and a.attname = 'key'
                      and not a.attisdropped) then
        perform from {schema}.meta where key = 'schema_version' for update;
    end if;
end
$$;
