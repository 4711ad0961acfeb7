-- name: subscription_create
-- Three statements in one message, which is one transaction: no client can hold its lock by going to sleep.
-- 1. READ COMMITTED whatever the role says, or all would see what the second statement saw.
-- 2. The lock that purges hold: none is at work from here on.
-- 3. One plain statement; in READ COMMITTED it has a snapshot of its own, taken *after* the lock was got. The snapshot
--    that is stored is the one that every table here is read by: no function runs around it, which would have others.
--    The lock has drawn an xid, which that snapshot may show as ended: no record bears it, for this transaction writes
--    none.
--    now: what had committed at the snapshot N has an id that was drawn before; the sequence is read after N, so that
--    id is at most L and the record is consumed. Everything else is delivered, once: above L it is new; up to L it is
--    not visible in N and comes late, for its id is above F. F is the highest floor of all: each was saved before N
--    for a snapshot older than N, and what was open at N was not visible in that one either, so its ids are above.
--    A time: what lies from the first id of that time on is above L, and new; below it everything is as for now.
--    The beginning: nothing is visible in 1:1:, and everything is above 0.
--    In a copy that was rebased the xids of old records are another cluster's, and up to the id in the marker nothing
--    becomes visible any more: that is a floor, also for the beginning.
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
           greatest((select max(p.floor_id) from {schema}.partition p), rebased.floor_id) as floor_id
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
-- The event types that each wants; null: all.
select name, type_filters from {schema}.subscription

-- name: subscription_filters
-- The event types that it wants; null: all.
select type_filters from {schema}.subscription where name = %(subscription)s

-- name: subscription_paused
-- Whether it is paused; no row if it does not exist.
select paused_at is not null from {schema}.subscription where name = %(subscription)s

-- name: subscription_pause
-- Nobody is to own anything of it; see the function.
select {schema}.subscription_pause(%(subscription)s)::integer as changed

-- name: subscription_resume
-- The next tick of a node's membership plans it again; whether it was paused.
update {schema}.subscription s set paused_at = null
  from (select name, paused_at from {schema}.subscription where name = %(subscription)s for no key update) before
 where s.name = before.name
returning (before.paused_at is not null)::integer as changed

-- name: subscription_holders
-- Its instances, with how many partitions each owns; and owners that are no instances any more.
select coalesce(i.instance_id, p.owner), i.node, i.pid, i.heartbeat_at,
       extract(epoch from i.heartbeat_at + i.lease - clock_timestamp())::float8, extract(epoch from i.lease)::float8,
       coalesce(p.owned, 0)
  from (select * from {schema}.instance where subscription = %(subscription)s) i
  full join (select owner, count(*) as owned from {schema}.partition
              where subscription = %(subscription)s and owner is not null group by owner) p on p.owner = i.instance_id
 order by i.node, i.pid

-- name: subscription_reach
-- Whether a time is yet to come, the newest record id, and how far purges went if they may have removed what follows.
select coalesce(%(from_time)s::timestamptz > clock_timestamp(), false), {schema}.drawn(),
       {schema}.subscription_purged(%(from_id)s::bigint, %(from_time)s::timestamptz)

-- name: subscription_replay
-- Set it back; see the function.
select problem, purged_id, rewound as changed
  from {schema}.subscription_replay(%(subscription)s, %(from_id)s::bigint, %(from_time)s::timestamptz, %(resume)s)

-- name: subscription_drop
-- Delete it; see the function.
select problem, (problem is null)::integer as changed from {schema}.subscription_drop(%(subscription)s) as problem
