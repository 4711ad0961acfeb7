-- name: drawn
-- Other queries contain this expression. It is the highest id that was drawn. A null from the sequence means that no id is drawn yet, but
-- only for a role that may read the sequence: PostgreSQL 18 also returns null to all other roles. For those the expression is null, which
-- every reader treats as an error.
coalesce(pg_sequence_last_value({sequence}),
         case when has_sequence_privilege({sequence}, 'SELECT') or has_sequence_privilege({sequence}, 'USAGE') then 0 end)

-- name: log_named
-- Other queries contain this expression. It is the oids of the log and its sequence as one number. The server resolves the names when it
-- analyses the statement, and again whenever one of the two has changed, because the plan depends on them. So the expression costs
-- nothing.
(({log}::oid::bigint << 32) | {sequence}::oid::bigint)

-- name: tables_begin
-- The query returns two numbers with which a session begins: the oids of the log (see `log_named`), and the oids of the tables that its
-- saves write to.
select {log_named}, {schema}.tables_saved()

-- name: log_begin
-- The query returns the oids of the log (see `log_named`), a number for its present definition (`log_now`), and true. It fails if a table
-- or segment is missing (`intact`). The log is locked, so that nothing changes between these answers.
select {log_named}, {schema}.log_now(), {schema}.intact() from (select count(*) from {schema}.record where false) as locked

-- name: intact
-- The query fails if a table or segment is missing, or if the given subscription, or any, lacks a row of `partition`; see the functions.
select {schema}.intact(), {schema}.all_cursors(%(subscription)s)

-- name: used
-- Other queries contain this expression. It is the greatest id that anything names: a record, a cursor, a parked event, or the progress
-- of a purge, an archive or a rebase. It costs one index probe for each subscription and for each segment that takes ids that are not
-- drawn yet.
greatest((select r.id from {schema}.record r where r.partition >= 0 and r.id > (select {drawn}) order by r.id desc limit 1),
         (select max(greatest(p.floor_id, p.last_id)) from {schema}.partition p),
         (select max(k.id) from {schema}.subscription s
           cross join lateral (select max(k.record_id) as id from {schema}.parked k where k.subscription = s.name) k),
         (select max(m.value::bigint) from {schema}.meta m where m.key in ('purged_id', 'archived_id', 'marker')))

-- name: ids
-- The query returns the greatest id that is used, and the highest id that was drawn.
select {used}, {drawn}

-- name: hidden
-- The query returns the first, the last and the number of the records that cursors have passed without having read them. It returns no
-- row if there are none. Such records got ids up to a floor after the snapshot of that floor, because the sequence was set back. The
-- query searches the last 10,000 ids that were passed, by the given subscription or by each. Up to the id in the marker, the transaction
-- ids belong to another cluster. The records are read once for all subscriptions, and those that every one of the snapshots shows are
-- compared with no cursor.
with span as materialized (
    select greatest((select max(least(p.floor_id, p.last_id)) - 10000 from {schema}.partition p),
                    (select m.value::bigint from {schema}.meta m where m.key = 'marker')) as after
), cursors as materialized (
    select c.partition, least(c.floor_id, c.last_id) as passed, c.snapshot
      from {schema}.partition c
     where (%(subscription)s::text is null or c.subscription = %(subscription)s)
           and least(c.floor_id, c.last_id) > (select after from span)
), fresh as materialized (
    select r.id, r.xid, r.partition from {schema}.record r
     where r.partition >= 0 and r.id > (select after from span) and r.id <= (select max(passed) from cursors)
           and r.xid >= (select pg_snapshot_xmin(snapshot) as oldest from cursors order by oldest limit 1)
)
select min(r.id), max(r.id), count(distinct r.id)
  from fresh r
  join cursors c on c.partition = r.partition and c.passed >= r.id
 where not pg_visible_in_snapshot(r.xid, c.snapshot)
having count(*) > 0

-- name: row_security_off
-- In this transaction PostgreSQL raises an error where it would hide rows.
select set_config('row_security', 'off', true)

-- name: session_begin
-- The query returns whether row security is off for this session, as the options of partbox request, and the search_path that the session
-- was given. If the options are in force, unqualified names mean PostgreSQL's own objects from here on. Otherwise a function of somebody
-- else that fits better would be preferred, and would run as this role. Where a pooler has dropped the options, others use the session
-- too, and its search_path does not change.
select pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'off', pg_catalog.current_setting('search_path'),
       case when pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'off'
            then pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false) end

-- name: search_path
-- Names in SQL and of tables that an operator has given are resolved as for this role outside of partbox. This holds for the transaction
-- if `here` is true, and from now on if not.
select set_config('search_path', %(path)s, %(here)s)

-- name: is_shadowed
-- The query returns whether another schema comes before the one with PostgreSQL's own functions.
select pg_catalog.array_position(pg_catalog.current_schemas(true), 'pg_catalog'::pg_catalog.name) operator(pg_catalog.>) 1

-- name: database_is
-- The query identifies the database of this session. Two sessions get the same answer if they are in the same database.
select concat_ws(' ', extract(epoch from pg_postmaster_start_time()), oid) from pg_database where datname = current_database()
