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

-- The last row in `attempt` tells of a delivery, if that is an end of the event. One at the first go left none: it was saved by
-- the first note of progress that has passed the record, else by the cursor itself; and it came after what a note says to have
-- been unread: after the first delivery, should the subscription have been set back. It was delivered by that note's process,
-- or by the owner, for each owner leaves a note with its partition: unless earlier notes are gone, and it may have claimed
-- since (an epoch is not below the milliseconds of its claim).
create view {schema}.delivery as
    select c.subscription, r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id,
           r.created_at as published_at,
           case when last.outcome in ('ignored', 'repeated') then last.outcome else 'delivered' end as outcome,
           least(greatest(r.created_at, case when last.ends then earlier.at else last.at end, unread.at), saved.at) as delivered_after,
           saved.at as delivered_before, saved.instance as process
      from {schema}.record r
      join {schema}.partition c on c.partition = r.partition
      join {schema}.subscription s on s.name = c.subscription
      left join {schema}.parked k on k.subscription = c.subscription and k.record_id = r.id
      left join {schema}.instance i on i.instance_id = c.owner
      left join lateral (
           select a.at, a.outcome, a.instance, a.outcome in ('done', 'repeated', 'ignored') as ends
             from {schema}.attempt a
            where a.subscription = c.subscription and a.record_id = r.id
            order by a.at desc limit 1) last on true
      left join lateral (
           select a.at from {schema}.attempt a
            where a.subscription = c.subscription and a.record_id = r.id and a.at < last.at and last.ends
            order by a.at desc limit 1) earlier on true
      left join lateral (
           select max(n.read_at) as at from {schema}.progress_note n
            where n.subscription = c.subscription and n.partition = c.partition and n.at >= r.created_at and n.read_id < r.id
                  and last.ends is not true) unread on true
      left join lateral (
           select n.at, n.instance, n.epoch from {schema}.progress_note n
            where n.subscription = c.subscription and n.partition = c.partition
                  and n.at >= greatest(r.created_at, last.at, unread.at)
                  and n.last_id >= r.id and pg_visible_in_snapshot(r.xid, n.snapshot)
                  and last.ends is not true
            order by n.at limit 1) note on true
     cross join lateral (
           select case when last.ends then last.at else coalesce(note.at, c.saved_at) end as at,
                  case when last.ends then last.instance
                       when coalesce(note.epoch, c.epoch) <= extract(epoch from r.created_at) * 1000 or exists (
                                select from {schema}.progress_note n
                                 where n.subscription = c.subscription and n.partition = c.partition
                                       and n.at < coalesce(note.at, 'infinity'))
                       then coalesce(note.instance, i.pid || ' on ' || i.node) end as instance
           ) saved
     where r.partition >= 0 and k.record_id is null
           and (r.id <= least(c.floor_id, c.last_id) or (r.id <= c.last_id and pg_visible_in_snapshot(r.xid, c.snapshot)))
           and (last.at is not null
                or (s.type_filters is null or r.event_type = any (s.type_filters))
                   and (s.created_at <= r.created_at or unread.at is not null));

comment on view {schema}.delivery is
    'Records that a subscription is through with: between when and when each was delivered, and by which process (null: nobody '
    'knows any more). ignored: it failed, and on_error said that it does not matter. repeated: a process that died may have run '
    'it, too. Ask by id, by (partition, id), or by (partition, aggregate_id) with partbox.partition_of(aggregate_id).';
