-- name: doctor_patience
-- In this transaction no statement waits for a lock for long, because a held lock may be the very problem to find.
select set_config('lock_timeout', %(limit)s, true), set_config('jit', 'off', true)

-- name: doctor_server
-- The query returns one row: the server's clock (Unix time), the database, the role, whether the role sees all sessions, the settings of
-- this session, the number of connections, the number of connections that ordinary roles may use, and the number of transaction ids that
-- were assigned since the oldest one that is not frozen in this database.
select extract(epoch from clock_timestamp())::float8,
       current_database(), current_user::text,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
       (select json_object_agg(name, setting) from pg_settings
         where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts', 'jit', 'row_security',
                        'statement_timeout', 'idle_in_transaction_session_timeout', 'default_transaction_isolation',
                        'max_prepared_transactions', 'autovacuum_freeze_max_age')),
       (select coalesce(sum(numbackends), 0)::int from pg_stat_database),
       (select sum(case when name = 'max_connections' then setting::int else -setting::int end)::int from pg_settings
         where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),
       (select age(datfrozenxid) from pg_database where datname = current_database())

-- name: queue_usage
-- The query returns the used part of the server's notification queue, from 0 to 1, after entries that nobody needs any more are freed.
select pg_notification_queue_usage()

-- name: queue_holder
-- The query sends a notification that nobody heeds. When it is committed, the server issues a warning that names the session that keeps
-- the queue from being emptied. It does so if the queue is half full and there was no such warning in the last five seconds.
select pg_notify({channel}, 'doctor')

-- name: doctor_life
-- The query fails if the sequence `life` cannot be read.
select pg_sequence_last_value(to_regclass(quote_ident({schema_name}) || '.life'))

-- name: doctor_sequence
-- The query returns one row: the last value and the definition of the id sequence, the table that owns the sequence, and the defaults of
-- `record.id` and `record.xid`. The migration 0014_baseline has the right values.
select case when has_sequence_privilege(s.seqrelid, 'SELECT') or has_sequence_privilege(s.seqrelid, 'USAGE')
            then coalesce(pg_sequence_last_value(s.seqrelid), 0) end,
       s.seqincrement, s.seqcache, s.seqcycle,
       (select d.refobjid::regclass::text from pg_depend d
         where d.classid = 'pg_class'::regclass and d.objid = s.seqrelid and d.deptype in ('a', 'i')
               and d.refobjsubid > 0 limit 1),
       (select json_object_agg(a.attname, pg_get_expr(d.adbin, d.adrelid))
          from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where a.attrelid = to_regclass(quote_ident({schema_name}) || '.record') and a.attname in ('id', 'xid'))
  from pg_sequence s
 where s.seqrelid = {sequence}

-- name: doctor_sessions
-- The query returns the sessions of all databases that have a transaction, the oldest transaction first. Ages are in seconds. The
-- eleventh column is the age of the session's transaction id or snapshot in transactions. The last two columns say whether the session
-- has written records, and whether it holds a lock on a table of partbox that excludes writers.
with ours as (
    select l.pid, bool_or(l.mode = 'RowExclusiveLock' and (c.relname = 'record' or c.relispartition)) as publishes,
           bool_or(l.mode in ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) as shuts
      from pg_locks l
      join pg_class c on c.oid = l.relation and c.relnamespace = quote_ident({schema_name})::regnamespace
     where l.granted and l.locktype = 'relation' and l.database = (select oid from pg_database where datname = current_database())
     group by l.pid
)
select a.pid, a.datname, a.usename, a.application_name, a.client_addr::text, a.state,
       extract(epoch from clock_timestamp() - a.xact_start)::float8,
       extract(epoch from clock_timestamp() - a.state_change)::float8,
       a.backend_xid is not null, a.backend_xmin is not null,
       greatest(age(a.backend_xid), age(a.backend_xmin)), left(a.query, 300),
       coalesce(o.publishes, false), coalesce(o.shuts, false)
  from pg_stat_activity a
  left join ours o on o.pid = a.pid
 where a.pid <> pg_backend_pid() and coalesce(a.backend_type, 'client backend') = 'client backend'
       and (a.xact_start is not null or a.backend_xid is not null or a.backend_xmin is not null)
 order by a.xact_start nulls last, a.pid
 limit 100

-- name: doctor_nodes
-- The query returns the number of sessions of nodes in this database, of any subscription and schema, and the age of the oldest session
-- in seconds.
select count(*), extract(epoch from clock_timestamp() - min(backend_start))::float8
  from pg_stat_activity
 where datname = current_database() and application_name = 'partbox supervisor'

-- name: doctor_waits
-- The query returns the sessions that wait for a lock while they hold or want a lock on a table of partbox, the longest wait first. Each
-- row has the seconds of the wait and the pids of the sessions that it waits for.
select w.pid, a.usename, a.application_name, left(a.query, 300),
       extract(epoch from clock_timestamp() - min(w.waitstart))::float8,
       pg_blocking_pids(w.pid), min(c.relname::text)
  from pg_locks w
  join pg_locks l on l.pid = w.pid and l.database = (select oid from pg_database where datname = current_database())
  join pg_class c on c.oid = l.relation and c.relnamespace = quote_ident({schema_name})::regnamespace and c.relkind in ('r', 'p')
  left join pg_stat_activity a on a.pid = w.pid
 where not w.granted and w.pid <> pg_backend_pid()
 group by w.pid, a.usename, a.application_name, a.query
 order by min(w.waitstart) nulls last, w.pid
 limit 100

-- name: doctor_keepers
-- The query returns the sessions that hold a lock that only one session may have at a time, and for how many seconds, the longest first.
-- Such a lock is on a row of `subscription` (for its plans), on a row of `meta`, on the view `archiving`, or one of the two advisory
-- locks that partbox uses. Every role of the database may take an advisory lock.
with kept as (
    select l.pid, min(c.relname::text) as what
      from pg_locks l
      join pg_class c on c.oid = l.relation and c.relnamespace = quote_ident({schema_name})::regnamespace
     where l.granted and l.database = (select oid from pg_database where datname = current_database())
           and c.relname in ('subscription', 'meta', 'archiving') and l.mode <> 'AccessShareLock'
     group by l.pid
    union all
    select l.pid, case when l.objsubid = 2 then 'imports' else 'the first migration' end
      from pg_locks l
     where l.granted and l.locktype = 'advisory'
           and l.database = (select oid from pg_database where datname = current_database())
           and (l.objsubid = 2 and l.classid::bigint = hashtext('partbox.import ' || {schema_name})::bigint & 4294967295
                or l.objsubid = 1 and (l.classid::bigint << 32 | l.objid::bigint)
                                      = hashtextextended('partbox.migrate ' || {schema_name}, 0))
)
select a.pid, a.usename, a.application_name, kept.what,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, a.state_change))::float8
  from kept
  join pg_stat_activity a on a.pid = kept.pid
 where a.pid <> pg_backend_pid()
 order by 5 desc nulls last, a.pid
 limit 100

-- name: doctor_prepared
-- The query returns the prepared transactions of all databases, the oldest first, with the age in seconds and in transactions.
select gid, owner::text, database::text, extract(epoch from clock_timestamp() - prepared)::float8, age(transaction)
  from pg_prepared_xacts
 order by prepared
 limit 100

-- name: doctor_slots
-- The query returns the replication slots by name, with the number of transactions and the bytes of WAL that each holds back.
select slot_name::text, slot_type, active, age(xmin), age(catalog_xmin),
       greatest(0, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint
  from pg_replication_slots
 order by slot_name

-- name: doctor_tables
-- The query returns the tables that are written all the time, by name: the live and the dead rows according to the statistics, the size
-- in bytes, whether autovacuum is off, and the seconds since the last vacuum.
select c.relname::text, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), pg_relation_size(c.oid),
       'autovacuum_enabled=false' = any (coalesce(c.reloptions, array[]::text[]))
       or 'autovacuum_enabled=off' = any (coalesce(c.reloptions, array[]::text[])),
       extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8
  from pg_class c
  left join pg_stat_all_tables s on s.relid = c.oid
 where c.relnamespace = quote_ident({schema_name})::regnamespace and c.relname in ('partition', 'instance', 'parked')
 order by c.relname

-- name: doctor_segments
-- The query returns one row: the id at which the last segment of the log ends (null if there is none), whether the default segment has a
-- record, the first id that is kept out of the default segment although no segment takes it, the first ids of all segments, and the
-- reason why segments cannot be changed.
select (select max(s.upper) from {schema}.segment_ranges() s),
       exists (select from {schema}.record_default),
       (select p.lower from {schema}.segment_proof() p
         where not exists (select from {schema}.segment_ranges() s where s.lower <= p.lower and s.upper > p.lower)),
       array(select s.lower from {schema}.segment_ranges() s where s.lower is not null),
       (select m.value from {schema}.meta m where m.key = 'segments_failed')

-- name: doctor_archive
-- The query returns no row if no archive is kept. Otherwise it returns one row: why archiving fails and for how many seconds (both null
-- if it does not fail), and the age in seconds and the id of the oldest record that is in no archive.
select f.value::json ->> 'problem',
       (extract(epoch from clock_timestamp()) - (f.value::json ->> 'since')::float8)::float8,
       (extract(epoch from clock_timestamp()) - extract(epoch from waits.created_at))::float8, waits.id
  from {schema}.meta a
  left join {schema}.meta f on f.key = 'archive_failed'
  left join lateral (select r.id, r.created_at from {schema}.record r
                      where r.partition >= 0 and r.id > a.value::bigint order by r.id limit 1) as waits on true
 where a.key = 'archived_id' and a.value is not null

-- name: doctor_used
-- The query returns the greatest id that is used.
select {used}

-- name: doctor_open
-- The query counts the unfinished parked rows of each subscription and partition, in this order: the rows that count against the brake,
-- the rows that are held behind others, and the rows that only wait. A key with a held head is about to continue, so its rows count as
-- waiting.
with keys as (
    select subscription, partition, min(record_id) as head, count(*) filter (where state <> 'dead') as count,
           count(*) filter (where state = 'held') as held
      from {schema}.parked
     where blocks
     group by subscription, partition, aggregate_type, aggregate_id
), groups as (
    select y.subscription, y.partition, y.count, y.held, k.state = 'held' or {waits} as waits
      from keys y
      join {schema}.parked k on k.subscription = y.subscription and k.record_id = y.head
     union all
    select subscription, partition, count(*), 0, {waits} as waits
      from {schema}.parked
     where not blocks and state not in ('dead', 'discarded')
     group by subscription, partition, waits
)
select subscription, partition, coalesce(sum(count) filter (where not waits), 0)::bigint, sum(held)::bigint,
       coalesce(sum(count) filter (where waits), 0)::bigint
  from groups
 group by subscription, partition
 order by subscription, partition

-- name: doctor_letters
-- The query returns, for each subscription, the number of dead rows that the dead-letter hook has not had yet.
select subscription, count(*) from {schema}.parked where state = 'dead' and due_at is not null group by subscription

-- name: doctor_deferred
-- The query returns the deferred rows by subscription and type, the largest number first: the number, the age of the oldest in seconds,
-- the newest reason, and a handler whose circuit is open. A reason that a handler has given is preferred. Rows that wait for their turn
-- are left out.
with kinds as (
    select subscription, event_type, count(*) as count, min(parked_at) as since,
           coalesce(max(record_id) filter (where last_error not like '%% waits for its downstream%%'),
                    max(record_id)) as newest,
           max(substring(last_error from '^(.*?) waits for its downstream')) as handler
      from {schema}.parked
     where state = 'deferred' and not {waits_for_turn}
     group by subscription, event_type
     order by row_number() over (partition by subscription order by count(*) desc, event_type), count desc, event_type
     limit 5000
)
select n.subscription, n.event_type, n.count, extract(epoch from clock_timestamp() - n.since)::float8,
       left(k.last_error, 300), n.handler
  from kinds n
  join {schema}.parked k on k.subscription = n.subscription and k.record_id = n.newest
 order by n.count desc, n.event_type

-- name: doctor_dead
-- The query returns the dead rows by subscription, type and kind of error, the largest number of recent deaths first: the number, the
-- number of deaths in the last `lately` seconds, the seconds since the last, the first and the first recent death, and the newest row,
-- with its traceback for the first kind of a subscription.
with kinds as (
    select subscription, event_type, substring(last_error from E'^(?:[\\w<>]+\\.)*[A-Z]\\w*') as kind, count(*) as count,
           count(*) filter (where parked_at > clock_timestamp() - %(lately)s * interval '1 s') as lately,
           max(record_id) as newest, max(parked_at) as last,
           min(parked_at) as first,
           min(parked_at) filter (where parked_at > clock_timestamp() - %(lately)s * interval '1 s') as risen
      from {schema}.parked
     where state = 'dead'
     group by subscription, event_type, kind
     order by row_number() over (partition by subscription order by count(*) desc, event_type), lately desc, count desc,
              event_type
     limit 5000
)
select n.subscription, n.event_type, n.count, n.lately, extract(epoch from clock_timestamp() - n.last)::float8,
       extract(epoch from clock_timestamp() - n.first)::float8,
       extract(epoch from clock_timestamp() - n.risen)::float8, n.newest, left(k.last_error, 300),
       case when row_number() over (partition by n.subscription order by n.lately desc, n.count desc, n.event_type) = 1
            then k.traceback end
  from kinds n
  join {schema}.parked k on k.subscription = n.subscription and k.record_id = n.newest
 order by n.lately desc, n.count desc, n.event_type

-- name: doctor_accused
-- The query returns the rows that were running when a process died, or run now in a partition of such a process, with the seconds since
-- their start. The rows with most attempts come first.
select subscription, record_id, event_type, attempts, extract(epoch from clock_timestamp() - started_at)::float8
  from {schema}.parked
 where started_at is not null and state <> 'dead'
 order by attempts desc, record_id
 limit 100

-- name: doctor_held
-- The query returns the subscriptions that still need records that are older than `retain` seconds, by name: the number of partitions,
-- and the age of the oldest record in seconds. The third column counts those of these partitions in which the subscription has read
-- everything, although an open transaction may still write below its cursor. Only cursors below the ids of that time are looked at.
select p.subscription, count(*), count(*) filter (where p.last_id >= r.id),
       max(extract(epoch from clock_timestamp() - greatest(r.created_at, '0001-01-02 00:00Z')))::float8
  from {schema}.partition p
 cross join lateral (
       select id, created_at from {schema}.record
        where partition = p.partition and id > least(p.floor_id, p.last_id) order by id limit 1) r
 where least(p.floor_id, p.last_id) < (
           select {schema}.id_at(clock_timestamp() - least(%(retain)s, 36500 * 86400.0) * interval '1 s'))
       and r.created_at < clock_timestamp() - least(%(retain)s, 36500 * 86400.0) * interval '1 s'
 group by p.subscription
 order by p.subscription

-- name: doctor_expired
-- The query returns one row: the number of partitions with a record that is older than `retain` seconds and that nobody needs, and the
-- age of the oldest such record in seconds. In each partition it reads the first 100 records at most.
with bound as materialized (
    select n as partition, least(coalesce(p.passed, 9223372036854775807), w.passed) as id
      from generate_series(0, 255) n
      left join (select partition, min(least(floor_id, last_id)) as passed from {schema}.partition group by partition) p
             on p.partition = n
      left join (select partition, min(from_id) - 1 as passed from {schema}.spill group by partition) w on w.partition = n
), parkers as materialized (
    select array_agg(k.subscription) as names from ({first_parked}) k join {schema}.subscription s on s.name = k.subscription
)
select count(*), max(extract(epoch from clock_timestamp() - greatest(r.created_at, '0001-01-02 00:00Z')))::float8
  from bound b
 cross join lateral (
       select r.id, r.created_at
         from (select id, created_at from {schema}.record where partition = b.partition and id <= b.id
                order by id limit 100) r
        where not exists (select from {schema}.parked k
                           where k.subscription = any (array(select unnest(names) from parkers)) and k.record_id = r.id)
        order by r.id limit 1) r
 where r.created_at < clock_timestamp() - least(%(retain)s, 36500 * 86400.0) * interval '1 s'

-- name: doctor_access
-- The query returns the privileges that the roles of workers lack, and whether row security hides rows from them, one row for each
-- object. A role of workers is a role that was granted `save` or whose workers run now.
with role as (
    select r.oid, r.rolname::text as name, r.rolsuper or r.rolbypassrls as sees_all
      from pg_roles r
     where r.oid in (select a.grantee from pg_proc p cross join lateral aclexplode(p.proacl) a
                      where p.proname = 'save' and p.pronamespace = quote_ident({schema_name})::regnamespace
                            and a.grantee <> p.proowner)
           or r.oid in (select s.usesysid from pg_stat_activity s
                         where s.datname = current_database() and s.application_name in ('partbox poller', 'partbox saver'))
), needed (kind, object, privilege) as (
    values ('table', 'instance', 'SELECT'), ('table', 'instance', 'INSERT'), ('table', 'instance', 'UPDATE'),
           ('table', 'instance', 'DELETE'), ('table', 'meta', 'SELECT'), ('table', 'parked', 'SELECT'),
           ('table', 'parked', 'INSERT'), ('table', 'parked', 'UPDATE'), ('table', 'parked', 'DELETE'),
           ('table', 'spill', 'SELECT'), ('table', 'spill', 'INSERT'), ('table', 'spill', 'UPDATE'), ('table', 'spill', 'DELETE'),
           ('table', 'partition', 'SELECT'), ('table', 'partition', 'UPDATE'), ('table', 'record', 'SELECT'),
           ('table', 'subscription', 'SELECT'), ('sequence', 'record_id_seq', 'SELECT')
), object as (
    select n.kind, n.object, n.privilege, c.oid, c.relkind,
           c.relrowsecurity as secured, c.relforcerowsecurity as forced, c.relowner as owner
      from needed n
      join pg_class c on c.oid = to_regclass(format('%%I.%%I', {schema_name}, n.object))
)
select r.name, o.kind, o.object, bool_or(h.hidden),
       array_remove(array_agg(case when not h.may then lower(o.privilege) end order by o.privilege), null)
  from role r
 cross join object o
 cross join lateral (
       select o.secured and not r.sees_all and (o.forced or not pg_has_role(r.oid, o.owner, 'USAGE')) as hidden,
              case when (o.kind = 'sequence') <> (o.relkind = 'S') then true
                   when o.kind = 'sequence' then has_sequence_privilege(r.oid, o.oid, o.privilege)
                   when o.privilege in ('SELECT', 'DELETE') then has_table_privilege(r.oid, o.oid, o.privilege)
                   else has_any_column_privilege(r.oid, o.oid, o.privilege) end as may) h
 where h.hidden or not h.may
 group by r.name, o.kind, o.object
union all
select r.name, 'schema', null, false, array['usage']
  from role r
 where not has_schema_privilege(r.oid, quote_ident({schema_name})::regnamespace, 'USAGE')
union all
select r.name, 'function', p.oid::regprocedure::text, false, array['execute']
  from role r
  join pg_proc p on p.pronamespace = quote_ident({schema_name})::regnamespace
                    and p.proname in ('all_cursors', 'all_written', 'bury', 'claim', 'drawn', 'heartbeat', 'intact', 'log_now',
                                      'log_planned', 'plan', 'refill', 'refuse', 'save', 'tables_saved')
 where not has_function_privilege(r.oid, p.oid, 'EXECUTE')
 order by 1, 2, 3

-- name: doctor_search_path
-- The query returns the schemas in which this role searches for unqualified names, by name: the owner of each, this role, and who else
-- may create objects there. The list has PUBLIC, and each owner or grantee as whom some login role can act. A login role does not count
-- if it can become this role, the owner of the database or the owner of the schema of partbox, because it could do more anyway. An owner
-- counts because it may grant itself a privilege that it lacks.
-- The types of all arguments are exact, and no function accepts any type. Otherwise a function of the very roles that the query searches
-- for could be called.
select quote_ident(n.nspname::text), quote_ident(pg_get_userbyid(n.nspowner)::text), quote_ident(current_user::text), array(
       select case when a.grantee = 0::oid then 'PUBLIC' else quote_ident(pg_get_userbyid(a.grantee)::text) end
         from (select grantee from aclexplode(n.nspacl) where privilege_type = 'CREATE' union select n.nspowner) a
        where a.grantee = 0::oid
              or exists (select from pg_roles r
                          where r.rolcanlogin and not r.rolsuper and pg_has_role(r.oid, a.grantee, 'MEMBER'::text)
                                and not pg_has_role(r.oid, me.oid, 'MEMBER'::text)
                                and not pg_has_role(r.oid, d.datdba, 'MEMBER'::text)
                                and not pg_has_role(r.oid, o.nspowner, 'MEMBER'::text))
        order by a.grantee)
  from pg_namespace n, pg_namespace o, pg_roles me, pg_database d
 where n.nspname = any(current_schemas(false)) and n.nspname::text !~ '^pg_' and n.oid <> o.oid
       and o.nspname::text = {schema_name} and me.rolname = current_user and d.datname = current_database()
 order by n.nspname

-- name: doctor_triggers
-- The query returns the triggers and rules of others on the tables of partbox. The last column is true if a trigger or rule appears to
-- keep rows as they are, which raises no error. Triggers and rules of that kind come first: a row trigger that runs BEFORE and whose
-- function returns null somewhere, or is in a language that does not show this, and a rule that replaces a statement. Each trigger of the
-- log has a copy on every segment, which is left out.
with ours as (
    select c.oid, c.relname::text as name
      from pg_class c
     where c.relnamespace = quote_ident({schema_name})::regnamespace
           and (c.relname in ('record', 'partition', 'parked', 'instance', 'subscription', 'meta', 'idempotency', 'inbox', 'imported')
                or c.oid in (select i.inhrelid from pg_inherits i
                              where i.inhparent = to_regclass(quote_ident({schema_name}) || '.record')))
)
select o.name, 'trigger', t.tgname::text, format('%%I.%%I()', n.nspname, p.proname),
       t.tgtype & 3 = 3 and (l.lanname not in ('plpgsql', 'sql') or p.prosrc ~* '\mreturn\s+null\M')
  from ours o
  join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal and t.tgparentid = 0 and t.tgenabled in ('O', 'A')
  join pg_proc p on p.oid = t.tgfoid
  join pg_namespace n on n.oid = p.pronamespace
  join pg_language l on l.oid = p.prolang
union all
select o.name, 'rule', r.rulename::text, null, r.is_instead
  from ours o
  join pg_rewrite r on r.ev_class = o.oid and r.ev_type <> '1' and r.ev_enabled in ('O', 'A')
 order by 5 desc, 1, 3
 limit 100
