-- purpose: the schema of partbox 0.1.0: the log, its cursors, the cluster, the parked records, views for monitoring
-- breaking: yes

-- Not `create schema if not exists`, which asks for CREATE on the database though the schema is there.
do $$
begin
    if to_regnamespace(quote_ident({schema_name})) is null then
        if not has_database_privilege(current_database(), 'CREATE') then
            raise exception 'partbox: schema % does not exist in database %, and role % may not create it',
                    quote_ident({schema_name}), quote_ident(current_database()), quote_ident(current_user)
                using errcode = 'insufficient_privilege',
                      hint = format('have somebody who may run `create schema %I authorization %I`, and repeat this',
                                    {schema_name}, current_user);
        end if;
        create schema {schema};
    end if;
end
$$;

-- Not OWNED BY record.id: TRUNCATE ... RESTART IDENTITY, which test suites run, would reset it, and new
-- events would hide below the cursors. CACHE 1 and NO CYCLE: ids must rise in the order they are drawn.
create sequence {schema}.record_id_seq as bigint increment by 1 cache 1 no cycle;

create table {schema}.record (
    -- The id of the whole transaction. The system column xmin may be that of a savepoint, which snapshots do not list.
    xid            xid8        not null default pg_current_xact_id(),
    -- The transaction id is drawn before the record id in every form of INSERT, also where DEFAULT stands
    -- inside a VALUES list and is evaluated before the other columns. Fences rest on this.
    id             bigint      not null default case when pg_current_xact_id() is not null
                                                     then nextval({sequence}) end,
    partition      smallint    not null check (partition between 0 and 255),
    event_id       uuid        not null,
    event_type     text        not null,
    aggregate_type text        not null default '__GLOBAL__',
    aggregate_id   text,
    tenant_id      text,
    payload        json,
    payload_bytes  bytea,
    content_type   text,
    headers        json,
    available_at   timestamptz,
    occurred_at    timestamptz not null default clock_timestamp(),
    created_at     timestamptz not null default clock_timestamp(),
    primary key (partition, id)
) partition by range (id);

comment on table {schema}.record is 'The log. partbox makes its segments ahead of need, empties them whole and drops them.';

create table {schema}.record_1 partition of {schema}.record for values from (minvalue) to (10000000);
create table {schema}.record_default partition of {schema}.record default;

-- One scan finds what is new in all partitions that are caught up. Its condition is true of every record, and nobody who does
-- not say it too can use the index: else the planner would read each partition of a full poll by it, and with it the records
-- of all the others. It costs publishers some 60 to 80 bytes of WAL an event.
create index record_id on {schema}.record (id) where partition >= 0;

create table {schema}.subscription (
    name         text        primary key,
    created_at   timestamptz not null default clock_timestamp(),
    paused_at    timestamptz,
    type_filters text[]
);

-- No foreign key refers to cursors or from parked rows to the log: its locks would be taken in an order of their own, and it
-- would forbid TRUNCATE of the log.
create table {schema}.partition (
    subscription     text        not null,
    partition        smallint    not null,
    assignee         uuid,
    owner            uuid,
    epoch            bigint      not null default 0,
    claimed_at       timestamptz,
    suspect_until_id bigint,
    parked_version   bigint      not null default 0,
    snapshot         pg_snapshot not null,
    last_id          bigint      not null,
    floor_id         bigint      not null,
    saved_at         timestamptz,
    primary key (subscription, partition)
-- Pages stay half empty, so that the new version of a saved row fits beside the old one. They are vacuumed early, because
-- each save has to pass the dead versions.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

-- A tick finds the partitions of its process without reading the others. Neither column changes in a save, so saves stay HOT.
create index partition_assignee on {schema}.partition (subscription, assignee);
create index partition_owner on {schema}.partition (subscription, owner);

create table {schema}.instance (
    instance_id  uuid        primary key default gen_random_uuid(),
    subscription text        not null,
    node         text        not null,
    hostname     text        not null,
    pid          integer     not null,
    version      text        not null,
    started_at   timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    lease        interval    not null,
    draining     boolean     not null default false,
    -- The handlers of this process that have run for long, written by itself when they change: an array of objects; null
    -- where there are none.
    running      json,
    supervisor   uuid,  -- the node that the process belongs to, which a host may have several of
    sinks        json   -- an array of objects, one for each sink, written by itself while it sends; null before that
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

create table {schema}.parked (
    subscription   text        not null,
    record_id      bigint      not null,
    partition      smallint    not null,
    aggregate_type text        not null,
    aggregate_id   text,
    event_type     text        not null,
    state          text        not null
                   check (state in ('retrying', 'deferred', 'scheduled', 'held', 'dead', 'discarded', 'ready')),
    blocks         boolean     not null,
    attempts       integer     not null default 0,
    due_at         timestamptz,
    parked_at      timestamptz not null default clock_timestamp(),
    started_at     timestamptz,
    last_error     text,
    traceback      text,  -- the last frames of that of `last_error`; null where nothing was raised by a handler
    primary key (subscription, record_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

create index parked_due on {schema}.parked (subscription, partition, due_at) where due_at is not null;

create table {schema}.idempotency (
    key        text        primary key check (length(key) between 1 and 255),
    event_id   uuid        not null,
    created_at timestamptz not null default clock_timestamp()
);

create table {schema}.inbox (
    consumer   text        not null,
    event_id   uuid        not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (consumer, event_id)
);

-- Which rows of another outbox's table were imported, so that an import that is repeated takes each row once. `source`: the
-- table's name with its schema; `key`: its key as text. A row is written in the transaction that publishes what it names. It
-- is not the place in the table up to which all was imported: what commits late has a lower id, and a row of the old outbox
-- changes whenever somebody updates its status.
create table {schema}.imported (
    source text not null,
    key    text not null,
    primary key (source, key)
);

create table {schema}.meta (
    key   text primary key,
    value text,
    xid   xid8 not null default pg_current_xact_id()
);

comment on table {schema}.meta is 'What partbox knows of this schema: its version, the marker, how far purge and archive went.';

-- The marker tells this cluster from a logical copy of it: while nobody copies the row, the xid it was written
-- with (its xmin) is the xid it says. It is never updated. The system identifier of the cluster would not do: pg_upgrade
-- changes it, and a copy in the same cluster keeps it.
insert into {schema}.meta (key, value) values ('marker', null);

-- In a fresh cluster a restored marker may get just the transaction id that it names. So a row beside it names two
-- relations by oid: this table, and the primary key of the log. Oids stay where transaction ids do: pg_upgrade, a clone
-- by TEMPLATE, a schema that is renamed; and REINDEX CONCURRENTLY leaves the index of a partitioned table alone.
-- One oid alone can be the same by chance, too. But the key is made before this table here, and pg_dump
-- makes keys when all tables are there, so in a copy one of the two is always another.
-- It is not the value of the marker itself, which is an id after a rebase.
insert into {schema}.meta (key, value)
select 'marker_oids', m.tableoid::text || ' ' || to_regclass(quote_ident({schema_name}) || '.record_pkey')::oid::text
  from {schema}.meta m
 where m.key = 'marker';

-- Two sequences: neither must be a row that is locked.
-- `life`: ids and transaction ids that were lost with a tail of the WAL are given out again, so what a worker remembers of them
-- must not outlive the server's life; and behind a pooler its connection may. An unlogged sequence does not: it is reset by a
-- crash, by the promotion of a standby and by a restore from a base backup, and stays over a clean restart. Workers set it to
-- the time where it has no value, each poll and each look returns it, and a save compares it.
-- `bell`: the millisecond until which some worker sleeps. Workers set it before they sleep; who publishes while it lies ahead
-- rings, by NOTIFY. It is logged: a standby that is promoted before its first restartpoint after an unlogged sequence was made
-- cannot read that one ("bad magic number"), and every publish reads this one. Setting it writes some 100 bytes of WAL, about
-- once a second while workers sleep, and nobody waits for the disc to have it.
create unlogged sequence {schema}.life as bigint;
create sequence {schema}.bell as bigint;

insert into {schema}.subscription (name) values ('default');
insert into {schema}.partition (subscription, partition, snapshot, last_id, floor_id)
    select 'default', partition, '1:1:', 0, 0 from generate_series(0, 255) as partition;

-- An event is consumed if the cursor has passed it, and done if it is consumed and not parked. Of floor and last id the lower
-- one counts: an unread backlog below the floor would otherwise show as done.
create view {schema}.record_status as
    select c.subscription, r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.created_at,
           case when k.record_id is not null then k.state
                when r.id <= least(c.floor_id, c.last_id)
                     or (r.id <= c.last_id and pg_visible_in_snapshot(r.xid, c.snapshot)) then 'done'
                else 'pending' end as status
      from {schema}.record r
      join {schema}.partition c on c.partition = r.partition
      left join {schema}.parked k on k.subscription = c.subscription and k.record_id = r.id;

-- Pending is what no cursor has passed: what lies above it, and what committed late below it. Parked records are not.
-- What lies above is counted from the primary key alone, so the oldest is the one with the lowest id.
create view {schema}.backlog as
    select pending.subscription, pending.count, pending.oldest,
           case when pending.oldest is not null then
               extract(epoch from statement_timestamp()
                   - least(greatest(pending.oldest, '0001-01-02 00:00Z'), '9999-12-30 00:00Z'))::float8
           end as oldest_age_seconds
      from (select s.name as subscription, coalesce(sum(new.count + late.count), 0)::bigint as count,
                   least(min(first.created_at), min(late.created_at)) as oldest
              from {schema}.subscription s
              left join {schema}.partition c on c.subscription = s.name
              left join lateral (
                   select count(*) as count from {schema}.record r
                    where r.partition = c.partition and r.id > c.last_id) new on true
              left join lateral (
                   select r.created_at from {schema}.record r
                    where r.partition = c.partition and r.id > c.last_id order by r.id limit 1) first on true
              left join lateral (
                   select count(*) as count, min(r.created_at) as created_at from {schema}.record r
                    where r.partition = c.partition and r.id > least(c.floor_id, c.last_id) and r.id <= c.last_id
                          and not pg_visible_in_snapshot(r.xid, c.snapshot)) late on true
             group by s.name) pending;

comment on view {schema}.backlog is
    'Records that a subscription has not consumed yet, and the age of the oldest. Exact: it reads an index entry for '
    'each of them, for every subscription. For frequent looks at a deep backlog take partbox status or the metrics, '
    'which count up to 10,000 a partition and estimate beyond.';

create view {schema}.dead as
    select k.subscription, k.record_id, r.event_id, k.event_type, k.aggregate_type, k.aggregate_id, r.tenant_id,
           k.partition, k.attempts, k.parked_at as died_at, r.created_at as published_at, k.last_error as error,
           k.blocks, k.traceback
      from {schema}.parked k
      left join {schema}.record r on r.partition = k.partition and r.id = k.record_id
     where k.state = 'dead';

comment on view {schema}.dead is
    'Records that were given up, with their error; blocks: later events of the aggregate wait. No payloads. '
    'partbox dead replay and partbox dead discard act on them.';

-- Who archives locks this: see `archive_lock` in sql/queries/archive.sql.
create view {schema}.archiving as select 'locked by who archives'::text as purpose;
