-- purpose: delete a paused subscription that nobody works on: its cursors, its parked records, its history, its limits, its name
--
-- Null when it is done; else what is in the way: "missing", "resumed", "instances", "owners". Its row is locked first,
-- so nobody resumes it meanwhile; then its partitions, in order, as before every write of parked rows. An instance that
-- registers after the look is of no harm: no plan is made in a subscription that does not exist.
create or replace function {schema}.subscription_drop(subscription text)
returns text language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    going boolean;
begin
    select s.paused_at is null into going
      from {schema}.subscription s where s.name = subscription_drop.subscription for update;
    if going is null then
        return 'missing';
    elsif going then
        return 'resumed';
    end if;

    perform from {schema}.partition p
      where p.subscription = subscription_drop.subscription order by p.partition for update;
    if exists (select from {schema}.partition p
                where p.subscription = subscription_drop.subscription and p.owner is not null) then
        return 'owners';
    elsif exists (select from {schema}.instance i where i.subscription = subscription_drop.subscription) then
        return 'instances';
    end if;

    delete from {schema}.parked k where k.subscription = subscription_drop.subscription;
    delete from {schema}.handler_limit l where l.subscription = subscription_drop.subscription;
    delete from {schema}.attempt a where a.subscription = subscription_drop.subscription;
    delete from {schema}.progress_note n where n.subscription = subscription_drop.subscription;
    delete from {schema}.handled_types h where h.subscription = subscription_drop.subscription;
    delete from {schema}.partition p where p.subscription = subscription_drop.subscription;
    delete from {schema}.subscription s where s.name = subscription_drop.subscription;
    perform {schema}.all_written('subscription', 1, found::integer);
    perform {schema}.all_written('parked', count(*), 0) from {schema}.parked k where k.subscription = subscription_drop.subscription;
    perform {schema}.all_written('partition', count(*), 0)
       from {schema}.partition p where p.subscription = subscription_drop.subscription;
    return null;
end
$$;
