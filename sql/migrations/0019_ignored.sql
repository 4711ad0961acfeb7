-- purpose: who delivered the first events of a partition, and which events were ignored because no handler takes them
-- breaking: no

-- What lay above `claimed_id` when the owner claimed the partition was delivered by that owner.
alter table {schema}.partition add column claimed_id bigint;

-- The same of the owner that a note is about, and its id: "pid on node" may come again.
alter table {schema}.progress_note add column claimed_id bigint, add column instance_id uuid;

-- A row for each process, and not for each event: a subscription may ignore nine of ten.
create table {schema}.handled_types (
    instance_id  uuid        primary key,
    subscription text        not null,
    at           timestamptz not null default clock_timestamp(),
    types        json        not null
);

comment on table {schema}.handled_types is
    'The event types that a process has handlers for, with the aggregate type of each, or null for any, where it ignores all '
    'other events of its subscription. `at`: when it has last said so, once an hour while it lives. Kept for retain_history.';

-- The last row in `attempt` tells of a delivery, if that is an end of the event. One at the first go left none: it was saved by
-- the first note of progress that has passed the record, else by the cursor itself; and it came after what a note says to have
-- been unread, or after the claim whose cursor had not reached it: after the first delivery, should the subscription have been
-- set back and be owned by others since. It was delivered by that note's process, or by the owner, if that had claimed before
-- it was published (an epoch is not below the milliseconds of its claim), or with a cursor below it, or if there is an earlier
-- note, for each owner leaves one with its partition. Was there a handler for it in that process?
create or replace view {schema}.delivery as
    select c.subscription, r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id,
           r.created_at as published_at,
           case when last.outcome in ('ignored', 'repeated') then last.outcome
                when last.ends is not true and exists (
                         select from {schema}.handled_types h
                          where h.instance_id = saved.instance_id
                                and not exists (
                                    select from json_array_elements(h.types) t
                                     where t ->> 0 in ('*', r.event_type) and coalesce(t ->> 1, r.aggregate_type) = r.aggregate_type))
                then 'ignored'
                else 'delivered' end as outcome,
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
           select greatest(max(n.read_at), case when c.claimed_id < r.id then c.claimed_at end) as at
             from {schema}.progress_note n
            where n.subscription = c.subscription and n.partition = c.partition and n.at >= r.created_at and n.read_id < r.id
                  and last.ends is not true) unread on true
      left join lateral (
           select n.at, n.instance, n.instance_id, n.epoch, n.claimed_id
             from {schema}.progress_note n
            where n.subscription = c.subscription and n.partition = c.partition
                  and n.at >= greatest(r.created_at, last.at, unread.at)
                  and n.last_id >= r.id and pg_visible_in_snapshot(r.xid, n.snapshot)
                  and last.ends is not true
            order by n.at limit 1) note on true
     cross join lateral (
           select coalesce(note.epoch, c.epoch) <= extract(epoch from r.created_at) * 1000
                  or case when note.at is null then c.claimed_id else note.claimed_id end < r.id
                  or exists (select from {schema}.progress_note n
                              where n.subscription = c.subscription and n.partition = c.partition
                                    and n.at < coalesce(note.at, 'infinity')) as known) owner
     cross join lateral (
           select case when last.ends then last.at else coalesce(note.at, c.saved_at) end as at,
                  case when last.ends then last.instance
                       when owner.known then coalesce(note.instance, i.pid || ' on ' || i.node) end as instance,
                  case when owner.known then case when note.at is null then c.owner else note.instance_id end end as instance_id
           ) saved
     where r.partition >= 0 and k.record_id is null
           and (r.id <= least(c.floor_id, c.last_id) or (r.id <= c.last_id and pg_visible_in_snapshot(r.xid, c.snapshot)))
           and (last.at is not null
                or (s.type_filters is null or r.event_type = any (s.type_filters))
                   and (s.created_at <= r.created_at or unread.at is not null or note.claimed_id < r.id));

comment on view {schema}.delivery is
    'Records that a subscription is through with: between when and when each was delivered, and by which process (null: nobody '
    'knows any more). ignored: it failed, and on_error said that it does not matter, or its process had no handler for it. '
    'repeated: a process that died may have run it, too. Ask by id, by (partition, id), or by (partition, aggregate_id) with '
    'partbox.partition_of(aggregate_id).';
