-- purpose: the head of a blocked key is due now; a dead one is ready again
--
-- No row comes back where the key is not blocked. A head that is held or ready waits for nothing: then nothing changes.
-- Locks and parked_version as in replay.
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
