-- purpose: Make the first blocking record of an aggregate due now, or ready again if the record is dead.
--
-- The function returns the record, its state before, and whether the row was changed. It returns no row if the aggregate is
-- not blocked. A record with the state `held` or `ready` does not wait for a time, so nothing is changed.
--
-- The function locks partition rows and raises `parked_version` as `replay` does.
create or replace function {schema}.retry_now(subscription text, aggregate_type text, aggregate_id text)
returns table (record_id bigint, state text, changed boolean) language plpgsql
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    part smallint;
begin
    perform from {schema}.partition p
      where p.subscription = retry_now.subscription
            and p.partition in (select k.partition from {schema}.parked k
                                 where k.subscription = retry_now.subscription and k.blocks
                                       and k.aggregate_type = retry_now.aggregate_type
                                       and k.aggregate_id = retry_now.aggregate_id)
      order by p.partition
        for no key update;

    select k.record_id, k.state, k.state in ('retrying', 'deferred', 'dead')
      into retry_now.record_id, retry_now.state, retry_now.changed
      from {schema}.parked k
     where k.subscription = retry_now.subscription and k.blocks
           and k.aggregate_type = retry_now.aggregate_type and k.aggregate_id = retry_now.aggregate_id
     order by k.record_id
     limit 1;
    if not found then
        return;
    end if;

    if retry_now.state = 'dead' then
        perform {schema}.replay(retry_now.subscription, array[retry_now.record_id]);
    elsif retry_now.changed then
        update {schema}.parked k set due_at = clock_timestamp()
         where k.subscription = retry_now.subscription and k.record_id = retry_now.record_id
        returning k.partition into part;
        perform {schema}.all_written('parked', 1, found::integer);
        perform {schema}.reread(retry_now.subscription, array[part]);
    end if;
    return next;
end
$$;
