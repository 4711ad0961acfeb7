-- purpose: Delete a paused subscription that nobody works on, with its cursors, parked rows, history and limits.
--
-- The function returns null on success, and otherwise the obstacle: "missing", "resumed", "owners" or "instances".
--
-- The subscription's row is locked first, so nobody resumes the subscription meanwhile. Then its partition rows are locked,
-- in order, as before every write of parked rows. An instance that registers after the check does no harm, because a
-- subscription that does not exist gets no plan.
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
    delete from {schema}.spill w where w.subscription = subscription_drop.subscription;
    delete from {schema}.handler_limit l where l.subscription = subscription_drop.subscription;
    delete from {schema}.pause p where p.subscription = subscription_drop.subscription;
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
