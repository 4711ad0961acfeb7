-- purpose: Put a plan into force if the facts behind it still hold, and return whether they do.
--
-- `planned` has the new assignee of each partition, in the order of partitions. The caller has decided the plan from
-- `members` (the instances) and `seen` (the old assignees), which it has read before. With the subscription's row locked, the
-- function reads both again in new statements. If either differs, nothing is changed, and the next tick decides anew.
--
-- The function also changes nothing if the subscription is paused now, because a pause takes the same lock, or if another
-- transaction holds the lock, for which the function does not wait. The lock is no advisory lock, because anybody in the
-- database can hold one.
create or replace function {schema}.plan(subscription text, members uuid[], seen uuid[], planned uuid[])
returns boolean language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
begin
    perform from {schema}.subscription s where s.name = plan.subscription for no key update skip locked;
    if not found or exists (
        select from {schema}.subscription s where s.name = plan.subscription and s.paused_at is not null
    ) or plan.members is distinct from (
        select coalesce(array_agg(i.instance_id order by i.instance_id), '{{}}')
          from {schema}.instance i where i.subscription = plan.subscription and not i.draining
    ) or plan.seen is distinct from (
        select array_agg(p.assignee order by p.partition)
          from {schema}.partition p where p.subscription = plan.subscription
    ) then
        return false;
    end if;

    perform {schema}.intact();
    with changed as materialized (
        select p.partition, new.assignee
          from {schema}.partition p
          join unnest(plan.planned) with ordinality as new (assignee, position) on new.position = p.partition + 1
         where p.subscription = plan.subscription and p.assignee is distinct from new.assignee
         order by p.partition
           for no key update of p
    )
    update {schema}.partition p set assignee = changed.assignee
      from changed where p.subscription = plan.subscription and p.partition = changed.partition;
    perform {schema}.all_written('partition', count(*), 0)
       from {schema}.partition p
       join unnest(plan.planned) with ordinality as new (assignee, position) on new.position = p.partition + 1
      where p.subscription = plan.subscription and p.assignee is distinct from new.assignee;
    perform {schema}.tell('changed ' || plan.subscription);
    return true;
end
$$;
