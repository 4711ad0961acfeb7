-- name: doctor_patience
-- For this transaction: what is locked is not waited for long, for a lock may be what is being looked for.
select set_config('lock_timeout', %(limit)s, true), set_config('jit', 'off', true)

-- name: doctor_server
-- One row: the server's clock, what we may see, its settings as this session has them, and its connection slots.
select extract(epoch from clock_timestamp())::float8,
       current_database(), current_user::text,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
       (select json_object_agg(name, setting) from pg_settings
         where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts', 'jit', 'row_security',
                        'statement_timeout', 'idle_in_transaction_session_timeout', 'default_transaction_isolation',
                        'max_prepared_transactions', 'server_version_num')),
       (select coalesce(sum(numbackends), 0)::int from pg_stat_database),
       (select sum(case when name = 'max_connections' then setting::int else -setting::int end)::int from pg_settings
         where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections'))

-- name: queue_usage
-- The part of the server's notification queue that is in use, once what nobody needs any more is freed.
select pg_notification_queue_usage()

-- name: queue_holder
-- A notification that nobody heeds: when it is committed the server names in a warning who keeps the queue from being
-- emptied, if it is half full and there was no such warning in the last five seconds.
select pg_notify({channel}, 'doctor')

-- name: doctor_life
-- Fails where the sequence cannot be read.
select pg_sequence_last_value(to_regclass(quote_ident({schema_name}) || '.life'))

-- name: doctor_sequence
-- One row: the id sequence, and what a record gets by default; see the baseline for what they must be.
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
-- Sessions of all databases with a transaction: what it holds back, and what of ours it holds, the oldest first.
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
-- How many sessions of nodes there are in this database, of any subscription and schema, and the age of the oldest.
select count(*), extract(epoch from clock_timestamp() - min(backend_start))::float8
  from pg_stat_activity
 where datname = current_database() and application_name = 'partbox supervisor'

-- name: doctor_waits
-- Who waits for a lock while holding or wanting one on our tables, and for whom.
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
-- Who has locked, since when, what only one may have at a time: a row of `subscription` (its plans) or of `meta`, the view of
-- who archives, and the two things for which an advisory lock remains, which anybody in the database may take.
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
-- Prepared transactions of all databases, the oldest first.
select gid, owner::text, database::text, extract(epoch from clock_timestamp() - prepared)::float8, age(transaction)
  from pg_prepared_xacts
 order by prepared
 limit 100

-- name: doctor_slots
-- Replication slots, with how many transactions and how many bytes of WAL each holds back.
select slot_name::text, slot_type, active, age(xmin), age(catalog_xmin),
       greatest(0, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint
  from pg_replication_slots
 order by slot_name

-- name: doctor_tables
-- The tables that are written all the time: rows and dead rows as the statistics say, bytes, and their autovacuum.
select c.relname::text, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), pg_relation_size(c.oid),
       'autovacuum_enabled=false' = any (coalesce(c.reloptions, array[]::text[]))
       or 'autovacuum_enabled=off' = any (coalesce(c.reloptions, array[]::text[])),
       extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8
  from pg_class c
  left join pg_stat_all_tables s on s.relid = c.oid
 where c.relnamespace = quote_ident({schema_name})::regnamespace and c.relname in ('partition', 'instance', 'parked')
 order by c.relname

-- name: doctor_segments
-- One row: where the last segment of the log ends (null: nowhere), whether the default one holds a record, the first id
-- that is kept out of it though no segment takes it, the first ids of all segments, and why they cannot be changed.
select (select max(s.upper) from {schema}.segment_ranges() s),
       exists (select from {schema}.record_default),
       (select p.lower from {schema}.segment_proof() p
         where not exists (select from {schema}.segment_ranges() s where s.lower <= p.lower and s.upper > p.lower)),
       array(select s.lower from {schema}.segment_ranges() s where s.lower is not null),
       (select m.value from {schema}.meta m where m.key = 'segments_failed')

-- name: doctor_archive
-- No row where no archive is kept; else why it fails and for how many seconds, nulls if it does not; and the age and the
-- id of the oldest record that is in none.
select f.value::json ->> 'problem',
       (extract(epoch from clock_timestamp()) - (f.value::json ->> 'since')::float8)::float8,
       (extract(epoch from clock_timestamp()) - extract(epoch from waits.created_at))::float8, waits.id
  from {schema}.meta a
  left join {schema}.meta f on f.key = 'archive_failed'
  left join lateral (select r.id, r.created_at from {schema}.record r
                      where r.partition >= 0 and r.id > a.value::bigint order by r.id limit 1) as waits on true
 where a.key = 'archived_id' and a.value is not null

-- name: doctor_used
-- The greatest id that is used.
select {used}

-- name: doctor_open
-- Partitions with unfinished parked rows: those that count against the brake, those that are held behind others, and those
-- that only wait. A key whose head is held is about to go on.
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
-- How many dead rows of each subscription the dead-letter hook has not had yet.
select subscription, count(*) from {schema}.parked where state = 'dead' and due_at is not null group by subscription

-- name: doctor_deferred
-- Deferred rows by subscription and type, with the newest of their reasons: what a handler has said, if any has.
with kinds as (
    select subscription, event_type, count(*) as count, min(parked_at) as since,
           coalesce(max(record_id) filter (where last_error not like '%% waits for its downstream%%'),
                    max(record_id)) as newest
      from {schema}.parked
     where state = 'deferred' and not {waits_for_turn}
     group by subscription, event_type
     order by row_number() over (partition by subscription order by count(*) desc, event_type), count desc, event_type
     limit 5000
)
select n.subscription, n.event_type, n.count, extract(epoch from clock_timestamp() - n.since)::float8,
       left(k.last_error, 300)
  from kinds n
  join {schema}.parked k on k.subscription = n.subscription and k.record_id = n.newest
 order by n.count desc, n.event_type

-- name: doctor_dead
-- Dead rows by subscription, type and kind of error: how many, how many lately, and the newest of them.
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
       extract(epoch from clock_timestamp() - n.risen)::float8, n.newest, left(k.last_error, 300)
  from kinds n
  join {schema}.parked k on k.subscription = n.subscription and k.record_id = n.newest
 order by n.lately desc, n.count desc, n.event_type

-- name: doctor_accused
-- Rows that were running when a process died, or run now in a partition of one that did; those with most attempts.
select subscription, record_id, event_type, attempts, extract(epoch from clock_timestamp() - started_at)::float8
  from {schema}.parked
 where started_at is not null and state <> 'dead'
 order by attempts desc, record_id
 limit 100

-- name: doctor_held
-- Subscriptions that still need records which are older than the retention: in how many partitions, and how old. `floor`
-- counts those of them that have read everything there, but for what an open transaction may still write below.
select p.subscription, count(*), count(*) filter (where p.last_id >= r.id),
       max(extract(epoch from clock_timestamp() - greatest(r.created_at, '0001-01-02 00:00Z')))::float8
  from {schema}.partition p
 cross join lateral (
       select id, created_at from {schema}.record
        where partition = p.partition and id > least(p.floor_id, p.last_id) order by id limit 1) r
 where r.created_at < clock_timestamp() - least(%(retain)s, 36500 * 86400.0) * interval '1 s'
 group by p.subscription
 order by p.subscription

-- name: doctor_expired
-- One row: partitions with a record that is older than the retention and that nobody needs, and how old the oldest is.
with bound as materialized (
    select n as partition, coalesce(min(least(p.floor_id, p.last_id)), 9223372036854775807) as id
      from generate_series(0, 255) n
      left join {schema}.partition p on p.partition = n
     group by n
)
select count(*), max(extract(epoch from clock_timestamp() - greatest(r.created_at, '0001-01-02 00:00Z')))::float8
  from bound b
 cross join lateral (
       select r.id, r.created_at
         from (select id, created_at from {schema}.record where partition = b.partition and id <= b.id
                order by id limit 100) r
        where not exists (select from {schema}.parked k join {schema}.subscription s on s.name = k.subscription
                           where k.record_id = r.id)
        order by r.id limit 1) r
 where r.created_at < clock_timestamp() - least(%(retain)s, 36500 * 86400.0) * interval '1 s'

-- name: doctor_access
-- What the roles of workers may not do, or not see: those that were granted `save`, and those of workers that run. A row for
-- each table or other object of which that is so.
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
                                      'log_planned', 'plan', 'refuse', 'save', 'tables_saved')
 where not has_function_privilege(r.oid, p.oid, 'EXECUTE')
 order by 1, 2, 3

-- name: doctor_search_path
-- The schemas where this role looks for names without one, their owners, the role, and who else may create there: PUBLIC, and
-- owners and grantees as whom somebody may log in who cannot become this role, nor the owner of the database or of our schema,
-- which could do more. An owner may grant itself what it lacks.
-- All types are exact, and no function takes any type: else a function of those whom it looks for could answer.
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
-- Triggers and rules of others on our tables, and whether they look as if they kept rows as they are, which raises nothing:
-- a trigger before a row whose function returns null somewhere, or does not tell, and a rule in the place of a statement.
-- Segments have a copy of each trigger of the log, which is left out.
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
