-- name: subscription_settled_id
-- The first of three queries that find a floor for a new subscription. Each is a transaction of its own. This one returns
-- the highest record id that was drawn.
select {schema}.drawn()

-- name: subscription_bound
-- The second query draws a transaction id after the record id was read. A transaction draws its transaction id before its
-- record ids, so a transaction with a higher transaction id has only record ids above the one that was read.
select pg_current_xact_id()::text

-- name: subscription_settled
-- The third query says whether all transactions with a lower transaction id have ended. Then no record up to the record
-- id can become visible any more.
select pg_snapshot_xmin(pg_current_snapshot()) > %(bound)s::text::xid8

-- name: subscription_create
-- The message has three statements, which are one transaction. So no client can hold the lock by going to sleep.
-- 1. The level is READ COMMITTED, whatever the role says. Otherwise all statements would have the snapshot of the second.
-- 2. The lock is the one that purges hold. No purge runs from here on.
-- 3. The third statement is a plain one. In READ COMMITTED it has a snapshot of its own, taken *after* the lock was got.
--    It stores the snapshot by which it reads every table here. A function around it would have other snapshots. The
--    lock has drawn an xid, which that snapshot may show as ended. No record has this xid, because this transaction
--    writes no record.
--    A start at now: a record that had committed at the snapshot N has an id that was drawn before. The sequence is read
--    after N, so that id is at most L, and the record is consumed. Every other record is delivered once. Above L it is
--    new. Up to L it is not visible in N, and it comes late, because its id is above F. F is the highest floor of all.
--    Each floor was saved before N, for a snapshot older than N. A transaction that was open at N was not visible in
--    that snapshot either, so its ids are above the floor. Without any cursor, `settled` is the floor, see below.
--    A start at a time: the records from the first id of that time on are above L, and so are new. Below that id
--    everything is as for now.
--    A start at the beginning: nothing is visible in 1:1:, and everything is above 0.
--    In a copy that was rebased, the xids of old records belong to another cluster. Up to the id in the marker nothing
--    becomes visible any more. So that id is a floor, also for a start at the beginning.
set transaction isolation level read committed;
select {schema}.locked('purge', true);
with made as (
    insert into {schema}.subscription (name, type_filters) values (%(name)s, %(types)s::text[])
        on conflict (name) do nothing
    returning name
), rebased as (
    select coalesce((select m.value::bigint from {schema}.meta m where m.key = 'marker'), 0) as floor_id
), now as materialized (
    select pg_current_snapshot() as snapshot, {schema}.drawn() as last_id,
           greatest((select max(p.floor_id) from {schema}.partition p), rebased.floor_id,
                    %(settled)s::bigint) as floor_id
      from rebased
), first as (
    select r.partition, min(r.id) as id
      from {schema}.record r
     where r.created_at >= %(since)s::timestamptz
     group by r.partition
), cursors as (
    insert into {schema}.partition (subscription, partition, snapshot, last_id, floor_id)
    select made.name, number,
           case when %(beginning)s then '1:1:' else now.snapshot end,
           case when %(beginning)s then 0 else least(now.last_id, first.id - 1) end,
           case when %(beginning)s then rebased.floor_id else now.floor_id end
      from made
     cross join rebased
     cross join now
     cross join generate_series(0, 255) as number
      left join first on first.partition = number
    returning true
), act as (
    select 1 as changed from made
), note as ({noted})
select from made
 where (select {schema}.all_written('partition', (select 256 * count(*) from made), count(*)) from cursors)
       and {schema}.all_written('action', (select count(*) from act), (select count(*) from note))

-- name: subscription_types
-- The query returns the event types that each subscription wants, or null for all types.
select name, type_filters from {schema}.subscription

-- name: subscription_filters
-- The query returns the event types that the subscription wants, or null for all types.
select type_filters from {schema}.subscription where name = %(subscription)s

-- name: subscription_paused
-- The query returns whether the subscription is paused. It returns no row if the subscription does not exist.
select paused_at is not null from {schema}.subscription where name = %(subscription)s

-- name: subscription_pause
-- The query pauses the subscription, so that nobody owns its partitions any more; see the function `subscription_pause`.
select {schema}.subscription_pause(%(subscription)s)::integer as changed

-- name: subscription_resume
-- The statement resumes the subscription and returns whether it was paused. The next membership tick of a node plans it again.
update {schema}.subscription s set paused_at = null
  from (select name, paused_at from {schema}.subscription where name = %(subscription)s for no key update) before
 where s.name = before.name
returning (before.paused_at is not null)::integer as changed

-- name: subscription_holders
-- The query returns the instances of the subscription by node and pid, with the number of partitions that each owns. It also returns
-- owners that are not instances any more.
select coalesce(i.instance_id, p.owner), i.node, i.pid, i.heartbeat_at,
       extract(epoch from i.heartbeat_at + i.lease - clock_timestamp())::float8, extract(epoch from i.lease)::float8,
       coalesce(p.owned, 0)
  from (select * from {schema}.instance where subscription = %(subscription)s) i
  full join (select owner, count(*) as owned from {schema}.partition
              where subscription = %(subscription)s and owner is not null group by owner) p on p.owner = i.instance_id
 order by i.node, i.pid

-- name: subscription_reach
-- The query returns whether a time is in the future, the newest record id, and the id up to which purges have deleted records, if they
-- may have deleted records that the replay would deliver.
select coalesce(%(from_time)s::timestamptz > clock_timestamp(), false), {schema}.drawn(),
       {schema}.subscription_purged(%(from_id)s::bigint, %(from_time)s::timestamptz)

-- name: subscription_replay
-- The query sets the subscription back; see the function `subscription_replay`.
select problem, purged_id, rewound as changed
  from {schema}.subscription_replay(%(subscription)s, %(from_id)s::bigint, %(from_time)s::timestamptz, %(resume)s)

-- name: subscription_drop
-- The query deletes the subscription; see the function `subscription_drop`.
select problem, (problem is null)::integer as changed from {schema}.subscription_drop(%(subscription)s) as problem
