-- name: stats_plan
-- For this transaction: read the primary key in order up to the limits, whatever the statistics promise.
select set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true)

-- name: stats_cluster
-- One row: the subscription's pause, its instances, its partitions with what is pending, its parked rows by state.
with cursors as materialized (
    select partition, assignee, owner, epoch, snapshot, last_id, floor_id
      from {schema}.partition
     where subscription = %(subscription)s
), backlog as (
    -- Counted up to the limit, straight from the primary key. What lies between there and the newest thousand
    -- is estimated: so many ids, as densely this partition's as in the mean of both ends.
    select c.partition, c.assignee, c.owner, c.epoch,
           new.count + late.count + newest.count + case when newest.count < 1000 then 0 else
               ((newest.since - new.upto - 1) * (new.count::float8 / (new.upto - c.last_id)
                + newest.count::float8 / (newest.upto - newest.since + 1)) / 2)::bigint
           end as pending,
           new.count <= %(limit)s and late.range <= %(limit)s as exact,
           case when coalesce(oldest.created_at, late.created_at) is not null then
               greatest(0, extract(epoch from clock_timestamp() - least(oldest.created_at, late.created_at)))
           end as oldest_age
      from cursors c
     cross join lateral (
           select count(*) as count, max(id) as upto
             from (select id from {schema}.record where partition = c.partition and id > c.last_id
                    order by id limit %(limit)s + 1) read
         ) new
     cross join lateral (
           select count(*) as range,
                  count(*) filter (where not pg_visible_in_snapshot(xid, c.snapshot)) as count,
                  min(created_at) filter (where not pg_visible_in_snapshot(xid, c.snapshot)) as created_at
             from (select xid, created_at from {schema}.record
                    where partition = c.partition and id > least(c.floor_id, c.last_id) and id <= c.last_id
                    order by id desc limit %(limit)s + 1) read
         ) late
      left join lateral (
           select created_at from {schema}.record where partition = c.partition and id > c.last_id
            order by id limit 1
         ) oldest on new.count > 0
     cross join lateral (
           select count(*) as count, min(id) as since, max(id) as upto
             from (select id from {schema}.record
                    where partition = c.partition and id > new.upto and new.count > %(limit)s
                    order by id desc limit 1000) read
         ) newest
), members as (
    select i.instance_id, i.node, i.hostname, i.pid, i.version, i.draining,
           greatest(0, extract(epoch from clock_timestamp() - i.started_at)) as age,
           greatest(0, extract(epoch from clock_timestamp() - i.heartbeat_at)) as heartbeat_age,
           extract(epoch from i.lease) as lease,
           (select count(*) from cursors c where c.owner = i.instance_id) as partitions
      from {schema}.instance i
     where i.subscription = %(subscription)s
)
select (select paused_at is not null from {schema}.subscription where name = %(subscription)s),
       (select coalesce(json_agg(m order by m.node, m.hostname, m.pid, m.instance_id), '[]') from members m),
       (select coalesce(json_agg(b order by b.partition), '[]') from backlog b),
       (select coalesce(json_object_agg(k.state, k.count order by k.state), '{{}}')
          from (select state, count(*) as count from {schema}.parked
                 where subscription = %(subscription)s group by state) k)

-- name: stats_subscriptions
-- The names of all subscriptions.
select name from {schema}.subscription order by name
