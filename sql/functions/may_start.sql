-- purpose: Return the ids of the given due records that nobody has cancelled or is about to cancel.
--
-- The given records are parked as `scheduled`. The function discards the cancelled records, even if another process owns
-- their partition. Nobody runs a cancelled record, and nobody else writes its row, so the function locks no partition row. A
-- record that a transaction is about to cancel is neither returned nor discarded, and the caller asks for it again. The
-- function waits for no lock.
create or replace function {schema}.may_start(subscription text, record_ids bigint[])
returns setof bigint language plpgsql security definer
set plan_cache_mode = force_custom_plan set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    free   bigint[] := '{{}}';
    one    bigint;
    wanted bigint;
    given  bigint;
begin
    foreach one in array record_ids loop
        perform from {schema}.record r where r.partition >= 0 and r.id = one for share skip locked;
        if found then
            free := free || one;
        end if;
    end loop;

    -- The following statements are separate, so they see every transaction that had committed when the records were locked.
    with open as materialized (
        select k.record_id from {schema}.parked k
          join {schema}.cancellation c on c.record_id = k.record_id
         where k.subscription = may_start.subscription and k.record_id = any (record_ids) and k.state = 'scheduled'
           for no key update of k skip locked
    ), gone as (
        update {schema}.parked k
           set state = 'discarded', due_at = null, parked_at = clock_timestamp()
          from open
         where k.subscription = may_start.subscription and k.record_id = open.record_id
        returning k.record_id
    )
    select (select count(*) from open), (select count(*) from gone) into wanted, given;
    perform {schema}.all_written('parked', wanted, given);
    return query
    select id from unnest(free) as id
     where not exists (select from {schema}.cancellation c where c.record_id = id);
end
$$;
