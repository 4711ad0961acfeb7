-- purpose: Pause a subscription, so that nobody owns its partitions until it is resumed. Return true if it was not paused before.
--
-- The function returns null if there is no such subscription.
--
-- The lock on the subscription's row is the lock of plans. A plan that was decided before either comes first and is undone
-- here, or comes later and finds the subscription paused. At its next tick each owner sees that it is no longer the assignee,
-- finishes its running handlers, and releases its partitions.
create or replace function {schema}.subscription_pause(subscription text)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    going boolean;
begin
    select s.paused_at is null into going
      from {schema}.subscription s where s.name = subscription_pause.subscription for no key update;
    update {schema}.subscription s set paused_at = clock_timestamp()
     where s.name = subscription_pause.subscription and going;
    perform {schema}.all_written('subscription', going::integer, found::integer);

    with assigned as materialized (
        select p.partition
          from {schema}.partition p
         where p.subscription = subscription_pause.subscription and p.assignee is not null
         order by p.partition
           for no key update
    )
    update {schema}.partition p set assignee = null
      from assigned where p.subscription = subscription_pause.subscription and p.partition = assigned.partition;
    perform {schema}.all_written('partition', count(*), 0)
       from {schema}.partition p where p.subscription = subscription_pause.subscription and p.assignee is not null;
    perform {schema}.tell('changed ' || subscription_pause.subscription);
    return going;
end
$$;
