-- purpose: the log, its cursors, the cluster and the parked records
-- breaking: yes

create schema if not exists {schema};

-- Not OWNED BY record.id: TRUNCATE ... RESTART IDENTITY, which test suites run, would reset it, and new
-- events would hide below the cursors. CACHE 1 and NO CYCLE: ids must rise in the order they are drawn.
create sequence {schema}.record_id_seq as bigint increment by 1 cache 1 no cycle;

create table {schema}.record (
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

create table {schema}.record_1 partition of {schema}.record for values from (minvalue) to (10000000);
create table {schema}.record_default partition of {schema}.record default;

create table {schema}.subscription (
    name         text        primary key,
    created_at   timestamptz not null default clock_timestamp(),
    paused_at    timestamptz,
    type_filters text[]
);

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
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

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
    draining     boolean     not null default false
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
                   check (state in ('retrying', 'deferred', 'scheduled', 'held', 'dead', 'ready')),
    blocks         boolean     not null,
    attempts       integer     not null default 0,
    due_at         timestamptz,
    parked_at      timestamptz not null default clock_timestamp(),
    started_at     timestamptz,
    last_error     text,
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

create table {schema}.meta (
    key   text primary key,
    value text,
    xid   xid8 not null default pg_current_xact_id()
);

-- The marker tells this cluster from a logical copy of it: while nobody copies the row, the xid it was written
-- with (its xmin) is the xid it says. It is never updated.
insert into {schema}.meta (key, value) values ('marker', null);

insert into {schema}.subscription (name) values ('default');
insert into {schema}.partition (subscription, partition, snapshot, last_id, floor_id)
    select 'default', partition, '1:1:', 0, 0 from generate_series(0, 255) as partition;

-- Consumed is what the cursor has passed; parked says what of it is not finished.
create view {schema}.record_status as
    select c.subscription, r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.created_at,
           case when k.record_id is not null then k.state
                when r.id <= least(c.floor_id, c.last_id)
                     or (r.id <= c.last_id and pg_visible_in_snapshot(r.xid, c.snapshot)) then 'done'
                else 'pending' end as status
      from {schema}.record r
      join {schema}.partition c on c.partition = r.partition
      left join {schema}.parked k on k.subscription = c.subscription and k.record_id = r.id;
