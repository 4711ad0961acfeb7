-- purpose: views for monitoring by SQL: what is left to do, and what is dead
-- breaking: no

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
           k.blocks
      from {schema}.parked k
      left join {schema}.record r on r.partition = k.partition and r.id = k.record_id
     where k.state = 'dead';

comment on view {schema}.dead is
    'Records that were given up, with their error; blocks: later events of the aggregate wait. No payloads. '
    'partbox dead replay and partbox dead discard act on them.';
