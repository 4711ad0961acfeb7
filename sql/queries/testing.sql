-- name: testing_published
-- Every record that this transaction sees, in the order of the log, in the form that a delivered event is made of.
select r.partition, r.id, uuid_send(r.event_id), r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id,
       convert_to(r.payload::text, 'UTF8'), r.payload_bytes, r.content_type, convert_to(r.headers::text, 'UTF8'),
       timestamptz_send(r.available_at), timestamptz_send(r.occurred_at), timestamptz_send(r.created_at)
  from {schema}.record r
 order by r.id

-- name: testing_assign
-- Assign to me what has something to deliver now and no owner, unless the subscription is paused; whether there is
-- anything to deliver in that, or in what is mine.
with wanted as materialized (
    select r.partition
      from {schema}.record r
      join {schema}.partition p on p.subscription = %(subscription)s and p.partition = r.partition
     where r.id > least(p.floor_id, p.last_id) and (r.id > p.last_id or not pg_visible_in_snapshot(r.xid, p.snapshot))
    union
    select k.partition
      from {schema}.parked k
     where k.subscription = %(subscription)s and (k.state in ('held', 'ready') or k.due_at <= clock_timestamp())
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
-- Nothing is assigned to me any more, and I am gone.
with gone as (
    delete from {schema}.instance i where i.instance_id = %(me)s
)
update {schema}.partition p set assignee = null where p.subscription = %(subscription)s and p.assignee = %(me)s

-- name: testing_held
-- The events that were put behind another of their key since I came, and the attempts of each.
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
-- Whoever writes parked rows locks the partitions first, in their order.
select from {schema}.partition p order by p.subscription, p.partition for no key update

-- name: testing_advance_parked
-- So many seconds have passed for what waits in `parked`.
update {schema}.parked k set due_at = k.due_at - %(seconds)s * interval '1 second' where k.due_at is not null

-- name: testing_advance_records
-- ... and for what was published with a time and is not due.
update {schema}.record r set available_at = r.available_at - %(seconds)s * interval '1 second'
 where r.available_at > clock_timestamp()

-- name: testing_reload
-- The owners of partitions look at their parked rows again.
update {schema}.partition p set parked_version = p.parked_version + 1

-- name: testing_forget_parked
delete from {schema}.parked

-- name: testing_forget_records
delete from {schema}.record

-- name: testing_forget_keys
delete from {schema}.idempotency

-- name: testing_forget_inbox
delete from {schema}.inbox
