-- name: testing_published
-- The query returns every record behind the id `after` that this transaction sees, in the order of the log, in the form from which a
-- delivered event is made.
select r.partition, r.id, uuid_send(r.event_id), r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id,
       convert_to(r.payload::text, 'UTF8'), r.payload_bytes, r.content_type, convert_to(r.headers::text, 'UTF8'),
       timestamptz_send(r.available_at), timestamptz_send(r.occurred_at), timestamptz_send(r.created_at)
  from {schema}.record r
 where r.id > %(after)s
 order by r.id

-- name: testing_assign
-- The statement assigns to this instance the partitions that have something to deliver now and no owner, unless the subscription is
-- paused. It returns whether there is something to deliver in these partitions or in those that this instance owns.
with wanted as materialized (
    select r.partition
      from {schema}.record r
      join {schema}.partition p on p.subscription = %(subscription)s and p.partition = r.partition
     where r.id > least(p.floor_id, p.last_id) and (r.id > p.last_id or not pg_visible_in_snapshot(r.xid, p.snapshot))
    union
    select k.partition
      from {schema}.parked k
     where k.subscription = %(subscription)s and (k.state in ('held', 'ready') or k.due_at <= clock_timestamp())
    union
    select w.partition from {schema}.spill w where w.subscription = %(subscription)s
), free as materialized (
    select p.partition
      from {schema}.partition p
      join {schema}.subscription s on s.name = p.subscription and s.paused_at is null
     where p.subscription = %(subscription)s and p.owner is null and p.assignee is distinct from %(me)s
           and p.partition in (select partition from wanted)
     order by p.partition
       for no key update of p
), assigned as (
    update {schema}.partition p set assignee = %(me)s
      from free where p.subscription = %(subscription)s and p.partition = free.partition
    returning p.partition
)
select exists (select from assigned)
       or exists (select from {schema}.partition p
                   where p.subscription = %(subscription)s and p.owner = %(me)s
                         and p.partition in (select partition from wanted))

-- name: testing_leave
-- The statement deletes this instance and its assignments.
with gone as (
    delete from {schema}.instance i where i.instance_id = %(me)s
)
update {schema}.partition p set assignee = null where p.subscription = %(subscription)s and p.assignee = %(me)s

-- name: testing_held
-- The query returns the events that were parked behind another event of their key since this instance began, with the attempts of each,
-- in the order of ids.
select k.attempts, r.partition, r.id, uuid_send(r.event_id), r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id,
       convert_to(r.payload::text, 'UTF8'), r.payload_bytes, r.content_type, convert_to(r.headers::text, 'UTF8'),
       timestamptz_send(r.available_at), timestamptz_send(r.occurred_at), timestamptz_send(r.created_at), p.epoch
  from {schema}.parked k
  join {schema}.record r on r.partition = k.partition and r.id = k.record_id
  join {schema}.partition p on p.subscription = k.subscription and p.partition = k.partition
 where k.subscription = %(subscription)s and k.state = 'held'
       and k.parked_at >= (select i.started_at from {schema}.instance i where i.instance_id = %(me)s)
 order by k.record_id

-- name: testing_lock
-- Every transaction that writes parked rows locks the partitions first, in their order.
select from {schema}.partition p order by p.subscription, p.partition for no key update

-- name: testing_advance_parked
-- The statement makes parked rows due `seconds` seconds earlier, as if that time had passed.
update {schema}.parked k set due_at = k.due_at - %(seconds)s * interval '1 second' where k.due_at is not null

-- name: testing_advance_records
-- The statement makes records that are not due yet available `seconds` seconds earlier, as if that time had passed.
update {schema}.record r set available_at = r.available_at - %(seconds)s * interval '1 second'
 where r.available_at > clock_timestamp()

-- name: testing_reload
-- The new version makes the owners of partitions read their parked rows again.
update {schema}.partition p set parked_version = p.parked_version + 1

-- name: testing_forget
-- The statement deletes everything that was published, with its results.
with parked as (delete from {schema}.parked), spills as (delete from {schema}.spill), keys as (delete from {schema}.idempotency),
     inbox as (delete from {schema}.inbox), attempts as (delete from {schema}.attempt),
     notes as (delete from {schema}.progress_note), types as (delete from {schema}.handled_types), actions as (delete from {schema}.action)
delete from {schema}.record

-- name: testing_record
-- The query returns the newest record of an event, and whether its partition is free. A row proves that the subscription exists.
select r.id, p.owner is null
  from {schema}.record r
  join {schema}.partition p on p.subscription = %(subscription)s and p.partition = r.partition
 where r.event_id = %(event_id)s
 order by r.id desc limit 1

-- name: testing_park
-- The record is parked in the given state. The saved cursor of its partition need not have passed the record.
insert into {schema}.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks,
                             attempts, due_at, last_error)
select %(subscription)s, r.id, r.partition, r.aggregate_type, r.aggregate_id, r.event_type, %(state)s,
       %(blocks)s and r.aggregate_id is not null, %(attempts)s,
       case when %(due)s::float8 is not null then clock_timestamp() + %(due)s::float8 * interval '1 second'
            when r.aggregate_id is null and %(state)s in ('held', 'ready') then clock_timestamp() end, %(error)s
  from {schema}.record r
 where r.id = %(id)s

-- name: testing_pass
-- The cursor passes the record. Earlier records that it had not passed are parked, so that they are still delivered. One statement does
-- both, so the saved snapshot is the one in which the records were searched.
with cursor as materialized (
    select c.subscription, c.partition, c.last_id, c.floor_id, c.snapshot, s.type_filters
      from {schema}.record r
      join {schema}.partition c on c.subscription = %(subscription)s and c.partition = r.partition
      join {schema}.subscription s on s.name = c.subscription
     where r.id = %(id)s
), parked as (
    insert into {schema}.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state,
                                 blocks, due_at)
    select c.subscription, r.id, r.partition, r.aggregate_type, r.aggregate_id, r.event_type,
           case when r.available_at > clock_timestamp() then 'scheduled' else 'ready' end,
           r.aggregate_id is not null and coalesce(r.available_at <= clock_timestamp(), true),
           case when r.available_at > clock_timestamp() then least(r.available_at, '9999-12-30 00:00Z')
                when r.aggregate_id is null then clock_timestamp() end
      from cursor c
      join {schema}.record r on r.partition = c.partition and r.id > least(c.floor_id, c.last_id) and r.id <> %(id)s
                                and r.id <= greatest(c.last_id, %(id)s)
     where (r.id > c.last_id or not pg_visible_in_snapshot(r.xid, c.snapshot))
           and (c.type_filters is null or r.event_type = any (c.type_filters))
        on conflict (subscription, record_id) do nothing
)
update {schema}.partition p
   set snapshot = pg_current_snapshot(), last_id = greatest(p.last_id, %(id)s)
  from cursor c
 where p.subscription = c.subscription and p.partition = c.partition
