-- purpose: keys that are held up with many events, of which only the first have a row in `parked`
-- breaking: no

create table {schema}.spill (
    subscription   text        not null,
    partition      smallint    not null,
    key_hash       bytea       not null,
    aggregate_type text        not null,
    aggregate_id   text        not null,
    from_id        bigint      not null,
    since          timestamptz not null default clock_timestamp(),
    primary key (subscription, partition, key_hash)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

comment on table {schema}.spill is
    'A row for each aggregate that is held up with many events: those from from_id on that the cursor has passed may have no '
    'row in parked. They wait in the log, which is kept from there on.';

-- A process of an earlier version would deliver events of such an aggregate before those that wait in the log. So it claims no partition
-- with a spill.
alter table {schema}.instance add column reads_spills boolean not null default false;

comment on column {schema}.instance.reads_spills is 'True if the process knows the table `spill`.';

analyze {schema}.spill;

-- The table is noted beside the others that hold events; see the function `intact`.
update {schema}.meta m
   set value = (m.value::jsonb
                || jsonb_build_object('spill', to_regclass(format('%I.spill', {schema_name}))::oid::bigint))::text
 where m.key = 'tables';

create or replace view {schema}.record_status as
    select c.subscription, r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.created_at,
           case when k.record_id is not null then k.state
                when r.id <= least(c.floor_id, c.last_id)
                     or (r.id <= c.last_id and pg_visible_in_snapshot(r.xid, c.snapshot))
                then case when w.from_id <= r.id then 'held' else 'done' end
                else 'pending' end as status
      from {schema}.record r
      join {schema}.partition c on c.partition = r.partition
      left join {schema}.parked k on k.subscription = c.subscription and k.record_id = r.id
      left join {schema}.spill w on w.subscription = c.subscription and w.partition = r.partition
                                    and w.aggregate_type = r.aggregate_type and w.aggregate_id = r.aggregate_id;

-- As before, but for records that wait in the log: nobody has delivered them.
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
           and not exists (select from {schema}.spill w
                            where w.subscription = c.subscription and w.partition = r.partition and w.from_id <= r.id
                                  and w.aggregate_type = r.aggregate_type and w.aggregate_id = r.aggregate_id)
           and (r.id <= least(c.floor_id, c.last_id) or (r.id <= c.last_id and pg_visible_in_snapshot(r.xid, c.snapshot)))
           and (last.at is not null
                or (s.type_filters is null or r.event_type = any (s.type_filters))
                   and (s.created_at <= r.created_at or unread.at is not null or note.claimed_id < r.id));
