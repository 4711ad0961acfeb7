-- name: drawn
-- Part of others: the ids drawn so far. Null from a sequence is "none yet" only to a role that may read it, for PostgreSQL 18
-- answers null to all others too: then this is null, which is an error to whoever reads it.
coalesce(pg_sequence_last_value({sequence}),
         case when has_sequence_privilege({sequence}, 'SELECT') or has_sequence_privilege({sequence}, 'USAGE') then 0 end)

-- name: log_named
-- Part of others: the log and its sequence by their oids, as one number. The names are looked up when the statement is
-- analysed, and anew whenever one of the two has changed, for the plan depends on them: it costs nothing.
(({log}::oid::bigint << 32) | {sequence}::oid::bigint)

-- name: tables_begin
-- The log that a session begins with, and the tables that its saves write to.
select {log_named}, {schema}.tables_saved()

-- name: log_begin
-- The log; and what it is made of now, an error unless everything is in its place: see the functions. It is locked, so
-- that nothing changes between the two answers.
select {log_named}, {schema}.log_now(), {schema}.intact() from (select count(*) from {schema}.record where false) as locked

-- name: intact
-- An error unless everything is in its place, and the subscription, or each, has all its cursors; see the functions.
select {schema}.intact(), {schema}.all_cursors(%(subscription)s)

-- name: used
-- Part of others: the greatest id that anything names: a record, a cursor, a parked event, or how far a purge, an archive or
-- a rebase went. It costs an index probe a subscription and a segment: of segments those alone that take ids not drawn yet.
greatest((select r.id from {schema}.record r where r.partition >= 0 and r.id > (select {drawn}) order by r.id desc limit 1),
         (select max(greatest(p.floor_id, p.last_id)) from {schema}.partition p),
         (select max(k.id) from {schema}.subscription s
           cross join lateral (select max(k.record_id) as id from {schema}.parked k where k.subscription = s.name) k),
         (select max(m.value::bigint) from {schema}.meta m where m.key in ('purged_id', 'archived_id', 'marker')))

-- name: ids
-- The greatest id that is used, and the ids drawn.
select {used}, {drawn}

-- name: hidden
-- The first of the records that cursors have passed without having read them, the last, and how many; no row without any.
-- They got ids up to a floor after its snapshot, from a sequence that was set back. Among the last ids that were passed, by
-- this subscription or by each. Up to the marker's id the transaction ids are another cluster's.
select min(r.id), max(r.id), count(distinct r.id)
  from {schema}.partition c
 cross join lateral (
       select r.id, r.xid from {schema}.record r
        where r.partition = c.partition and r.id <= least(c.floor_id, c.last_id)
              and r.id > greatest((select max(least(p.floor_id, p.last_id)) - 10000 from {schema}.partition p),
                                  (select m.value::bigint from {schema}.meta m where m.key = 'marker'))
       offset 0) r
 where (%(subscription)s::text is null or c.subscription = %(subscription)s)
       and not pg_visible_in_snapshot(r.xid, c.snapshot)
having count(*) > 0

-- name: row_security_off
-- In this transaction PostgreSQL raises where it would hide rows.
select set_config('row_security', 'off', true)

-- name: session_begin
-- Whether row security is off for this session, as our options have it, and the search_path that it was given. With our
-- options names are PostgreSQL's own from here on: else a function of somebody else that fits better is preferred, and runs
-- as this role. Where a pooler has dropped them, others use the session too, and it stays as it is.
select pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'off', pg_catalog.current_setting('search_path'),
       case when pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'off'
            then pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false) end

-- name: search_path
-- Names in SQL, and of tables, that an operator has given mean what they mean to this role: in this transaction, or from here on.
select set_config('search_path', %(path)s, %(here)s)

-- name: is_shadowed
-- Whether PostgreSQL's own functions stand behind others.
select pg_catalog.array_position(pg_catalog.current_schemas(true), 'pg_catalog'::pg_catalog.name) operator(pg_catalog.>) 1

-- name: database_is
-- The database of this session: two sessions have the same answer if they are in the same one.
select concat_ws(' ', extract(epoch from pg_postmaster_start_time()), oid) from pg_database where datname = current_database()
