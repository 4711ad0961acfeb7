-- purpose: Make the first blocking record of an aggregate dead, and end its blocking, so that the records behind it go on.
--
-- The record is kept like every dead record, to be inspected, replayed or discarded. No dead-letter hook is called for it. If
-- the record is dead already, it only stops blocking.
--
-- The function returns the record, its state before, and true. It returns no row if the aggregate is not blocked. It locks
-- partition rows and raises `parked_version` as `replay` does.
create or replace function {schema}.skip(subscription text, aggregate_type text, aggregate_id text, reason text, error_limit integer)
returns table (record_id bigint, state text, changed boolean) language plpgsql
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    part  smallint;
    tried integer;
begin
    perform from {schema}.partition p
      where p.subscription = skip.subscription
            and p.partition in (select k.partition from {schema}.parked k
                                 where k.subscription = skip.subscription and k.blocks
                                       and k.aggregate_type = skip.aggregate_type
                                       and k.aggregate_id = skip.aggregate_id)
      order by p.partition
        for no key update;

    select k.record_id, k.state, true into skip.record_id, skip.state, skip.changed
      from {schema}.parked k
     where k.subscription = skip.subscription and k.blocks
           and k.aggregate_type = skip.aggregate_type and k.aggregate_id = skip.aggregate_id
     order by k.record_id
     limit 1;
    if not found then
        return;
    end if;

    update {schema}.parked k
       set state = 'dead', blocks = false, started_at = null,
           due_at     = case when k.state = 'dead' then k.due_at end,
           parked_at  = case when k.state = 'dead' then k.parked_at else clock_timestamp() end,
           last_error = case when k.state = 'dead' then k.last_error
                             else left(concat_ws('; ', 'skipped: ' || skip.reason, k.last_error), skip.error_limit) end
     where k.subscription = skip.subscription and k.record_id = skip.record_id
    returning k.partition, k.attempts into part, tried;
    perform {schema}.all_written('parked', 1, found::integer);
    insert into {schema}.attempt (subscription, record_id, attempt, outcome, error)
    values (skip.subscription, skip.record_id, tried, 'skipped', left(skip.reason, skip.error_limit));
    perform {schema}.attempts_kept(skip.subscription, array[skip.record_id]);
    perform {schema}.reread(skip.subscription, array[part]);
    return next;
end
$$;
