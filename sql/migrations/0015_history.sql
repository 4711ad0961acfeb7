-- purpose: what became of events: attempts and ends of single events, how far partitions got each minute, who did what
-- breaking: no

-- What befell an event after its publishing, but for one thing: a delivery at the first go, which `progress_note` tells.
-- At most the last ten rows of an event and subscription. They go after their record.
create table {schema}.attempt (
    subscription text        not null,
    record_id    bigint      not null,
    at           timestamptz not null default clock_timestamp(),
    attempt      integer     not null,  -- how many are counted by then
    outcome      text        not null
                 check (outcome in ('failed', 'dead', 'ignored', 'interrupted', 'done', 'repeated',
                                    'skipped', 'replayed', 'discarded')),
    instance     text,    -- pid and node of the process: its row in `instance` is gone some time; null for an operator's act
    seconds      float8,  -- how long the handler ran; null where that is not known
    error        text,
    primary key (subscription, record_id, at)
);

create index attempt_at on {schema}.attempt (at);

comment on table {schema}.attempt is
    'failed: another attempt follows. dead: given up. ignored: failed, and on_error said that it does not matter. '
    'interrupted: its process died while it ran. done: delivered, after it was parked. repeated: done, and a process that '
    'died may have run it before. skipped, replayed, discarded: by an operator, see table action.';

-- The saved cursor of a partition, about once a minute while there is progress, at a release and at a death. A record was
-- delivered by `at` if it is up to `last_id` and its xid is visible in `snapshot`, and it was not before `read_at` if it
-- is above `read_id`: nothing above that was read then.
create table {schema}.progress_note (
    subscription text        not null,
    partition    smallint    not null,
    at           timestamptz not null,
    last_id      bigint      not null,
    snapshot     pg_snapshot not null,
    read_at      timestamptz,
    read_id      bigint,
    epoch        bigint      not null,
    instance     text        not null,  -- as in `attempt`
    primary key (subscription, partition, at)
);

comment on table {schema}.progress_note is
    'How far each partition was at a time, by which process. The newest state is in table partition. Kept for retain_history.';

create table {schema}.action (
    id           bigint      generated always as identity primary key,
    at           timestamptz not null default clock_timestamp(),
    who          text        not null,
    action       text        not null,
    subscription text,
    target       jsonb,
    count        bigint
);

create index action_at on {schema}.action (at);

comment on table {schema}.action is 'What operators did: who, when, what, on what, how many. Rows are added, and purged.';
