-- name: unread
-- Other queries contain this query. It selects the records of partition `p` that its saved cursor has not passed. A long snapshot is
-- stored out of line. It is read once here, and not again for each record above the floor.
select from (select case when p.floor_id < p.last_id then p.snapshot::text::pg_snapshot end as snapshot offset 0) saved
 cross join {schema}.record r
 where r.partition = p.partition and r.id > least(p.floor_id, p.last_id)
       and (r.id > p.last_id or not pg_visible_in_snapshot(r.xid, saved.snapshot))

-- name: outstanding
-- The query returns the unfinished work of a subscription, as it is saved, in one row: whether the subscription is paused; whether there
-- are records to read; whether work may go on unseen, because a partition waits to be claimed or a handler runs for long; three numbers;
-- and two times. One of the three numbers changes whenever an event is finished: the sum of the cursors, the number of unfinished parked
-- rows and of aggregates whose events wait in the log, and the number of scheduled rows. The two times are the seconds until a row of either kind may run, and null if none runs by
-- itself. Of the rows that block a key, only the first may run. A dead row with a due time is owed to the dead-letter hook.
with heads as materialized (
    select min(k.record_id) as id
      from {schema}.parked k
     where k.subscription = %(subscription)s and k.blocks
     group by k.aggregate_type, k.aggregate_id
)
select s.paused_at is not null,
       exists (select from {schema}.partition p cross join lateral ({unread} limit 1) as unread where p.subscription = s.name),
       exists (select from {schema}.partition p where p.subscription = s.name and p.owner is null)
       or exists (select from {schema}.instance i where i.subscription = s.name and i.running is not null),
       (select sum(p.last_id)::text from {schema}.partition p where p.subscription = s.name),
       count(*) filter (where k.state <> 'scheduled')
       + (select count(*) from {schema}.spill w where w.subscription = s.name), count(*) filter (where k.state = 'scheduled'),
       min(k.due_in) filter (where k.state <> 'scheduled'), min(k.due_in) filter (where k.state = 'scheduled')
  from {schema}.subscription s
  left join lateral (
       select k.state,
              case when k.state <> 'dead' and k.blocks and h.id is null then null
                   when k.state in ('held', 'ready') then 0
                   else greatest(0, extract(epoch from least(k.due_at, '9999-12-30 00:00Z') - clock_timestamp())) end::float8
              as due_in
         from {schema}.parked k
         left join heads h on h.id = k.record_id
        where k.subscription = s.name and k.state <> 'discarded' and (k.state <> 'dead' or k.due_at is not null)) k on true
 where s.name = %(subscription)s and {schema}.all_cursors(s.name)
 group by s.name

-- name: left_over
-- The query returns the kinds of unfinished work, with the number of events of each kind and the seconds until the first of them is due.
-- The seconds are null if the events wait for something else. At most a thousand unread records are counted.
with heads as materialized (
    select distinct on (k.aggregate_type, k.aggregate_id) k.aggregate_type, k.aggregate_id, k.record_id, k.state
      from {schema}.parked k
     where k.subscription = %(subscription)s and k.blocks
     order by k.aggregate_type, k.aggregate_id, k.record_id
)
select case when k.state = 'dead' then 'not told to the dead-letter hook'
            when h.state = 'dead' then 'held behind dead events'
            when h.record_id < k.record_id then 'held behind others'
            else k.state end as what,
       count(*),
       min(greatest(0, extract(epoch from least(k.due_at, '9999-12-30 00:00Z') - clock_timestamp()))::float8)
           filter (where k.state = 'dead' or h.record_id is null or h.record_id = k.record_id)
  from {schema}.parked k
  left join heads h on k.blocks and h.aggregate_type = k.aggregate_type and h.aggregate_id = k.aggregate_id
 where k.subscription = %(subscription)s and k.state not in ('scheduled', 'discarded')
       and (k.state <> 'dead' or k.due_at is not null)
 group by what
union all
select 'in the log behind others, of so many aggregates', count(*), null
  from {schema}.spill w
 where w.subscription = %(subscription)s
having count(*) > 0
union all
select 'not read', count(*), null
  from (select from {schema}.partition p cross join lateral ({unread} limit 1000) as unread
         where p.subscription = %(subscription)s limit 1000) as unread
having count(*) > 0
 order by what
