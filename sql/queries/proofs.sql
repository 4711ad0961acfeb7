-- name: drawn
-- Part of others: the ids drawn so far. Null from a sequence is "none yet" only to a role that may read it, for PostgreSQL 18
-- answers null to all others too: then this is null, which is an error to whoever reads it.
coalesce(pg_sequence_last_value({sequence}),
         case when has_sequence_privilege({sequence}, 'SELECT') or has_sequence_privilege({sequence}, 'USAGE') then 0 end)

-- name: unfiltered
-- Part of others: true if row security hides no record. Where it is off for the session PostgreSQL raises instead of hiding
-- any; behind a pooler it may be on. The statement has locked the log by then, so the answer holds for all of it.
(current_setting('row_security') = 'off'
 or not row_security_active(to_regclass(quote_ident({schema_name}) || '.record')))

-- name: life_seen
-- Part of others: the server's life, or -1 if the log that the statement has read is not the one that the session began
-- with, or was not read whole.
case when {unfiltered}
          and coalesce(to_regclass(quote_ident({schema_name}) || '.record')::oid = %(log)s::oid, %(log)s::oid is null)
     then pg_sequence_last_value(%(life)s::oid::regclass) else -1 end

-- name: segments_seen
-- Part of others: a number that changes with every segment that is put into the log or taken out of it.
(select coalesce(bit_xor(i.inhrelid::bigint), 0) from pg_inherits i
  where i.inhparent = %(log)s::oid and not i.inhdetachpending)

-- name: tables_seen
-- Part of others: the tables that a save writes to, by their oids.
concat_ws(' ', to_regclass(quote_ident({schema_name}) || '.partition')::oid, to_regclass(quote_ident({schema_name}) || '.parked')::oid)

-- name: tables_begin
-- The log that a session begins with, and the tables that its saves write to.
select to_regclass(quote_ident({schema_name}) || '.record')::oid::bigint, {tables_seen}

-- name: segments_begin
-- The segments that the log has now; an error unless everything is in its place, see the function.
select {segments_seen}, {schema}.intact()

-- name: intact
-- An error unless everything is in its place; see the function.
select {schema}.intact()

-- name: reach
-- The highest id that a cursor has read, and the ids drawn.
select (select max(greatest(p.floor_id, p.last_id)) from {schema}.partition p), {drawn}

-- name: row_security_off
-- In this transaction PostgreSQL raises where it would hide rows.
select set_config('row_security', 'off', true)

-- name: session_begin
-- Whether row security is off for this session; and a text where the role or the database has put PostgreSQL's own functions
-- behind others of the same names: from here on they come first.
select pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'off',
       case when pg_catalog.array_position(pg_catalog.current_schemas(true), 'pg_catalog'::pg_catalog.name)
                 operator(pg_catalog.>) 1
            then pg_catalog.set_config('search_path',
                                       pg_catalog.concat('pg_catalog, ', pg_catalog.current_setting('search_path')), false) end

-- name: is_shadowed
-- Whether PostgreSQL's own functions stand behind others.
select pg_catalog.array_position(pg_catalog.current_schemas(true), 'pg_catalog'::pg_catalog.name) operator(pg_catalog.>) 1
