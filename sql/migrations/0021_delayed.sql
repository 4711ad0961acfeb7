-- purpose: what became of delayed events that were delivered at the first go, which leave no row in `attempt`
-- breaking: no

-- As before, but for records with a time: until then each was parked, which no note of progress tells. It was delivered after
-- its time and before the last save of the cursor, by the owner if that had claimed the partition before the time.
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
           least(greatest(r.created_at, case when last.ends then earlier.at else last.at end, unread.at, due.at), saved.at)
               as delivered_after,
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
     cross join lateral (
           select case when last.at is null and r.available_at > r.created_at then r.available_at end as at) due
      left join lateral (
           select n.at, n.instance, n.instance_id, n.epoch, n.claimed_id
             from {schema}.progress_note n
            where n.subscription = c.subscription and n.partition = c.partition
                  and n.at >= greatest(r.created_at, last.at, unread.at)
                  and n.last_id >= r.id and pg_visible_in_snapshot(r.xid, n.snapshot)
                  and last.ends is not true and due.at is null
            order by n.at limit 1) note on true
     cross join lateral (
           select coalesce(note.epoch, c.epoch) <= extract(epoch from coalesce(due.at, r.created_at)) * 1000
                  or due.at is null and case when note.at is null then c.claimed_id else note.claimed_id end < r.id
                  or due.at is null and exists (select from {schema}.progress_note n
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
