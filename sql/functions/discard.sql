-- purpose: Discard dead records for good: they block nothing and are never delivered. Return their number.
--
-- The parked row of a discarded record is kept as long as the record. The row distinguishes the record from a delivered one.
-- An owner that has not passed the record finds the row among its parked rows and does not deliver the record. A discarded
-- row does not keep the record in the log, and the brake does not count it.
--
-- The function locks partition rows and raises `parked_version` as `replay` does.
create or replace function {schema}.discard(subscription text, record_ids bigint[])
returns integer language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    changed smallint[];
    wanted  bigint;
begin
    perform from {schema}.partition p
      where p.subscription = discard.subscription
            and p.partition in (select k.partition from {schema}.parked k
                                 where k.subscription = discard.subscription and k.record_id = any (discard.record_ids))
      order by p.partition
        for no key update;

    with gone as (
        update {schema}.parked k
           set state = 'discarded', blocks = false, due_at = null, started_at = null, parked_at = clock_timestamp()
         where k.subscription = discard.subscription and k.record_id = any (discard.record_ids) and k.state = 'dead'
        returning k.partition, k.record_id, k.attempts
    ), told as (
        insert into {schema}.attempt (subscription, record_id, attempt, outcome)
        select discard.subscription, gone.record_id, gone.attempts, 'discarded' from gone
            on conflict do nothing
    )
    select coalesce(array_agg(gone.partition), '{{}}'),
           (select count(*) from {schema}.parked k
             where k.subscription = discard.subscription and k.record_id = any (discard.record_ids) and k.state = 'dead')
      into changed, wanted from gone;

    perform {schema}.all_written('parked', wanted, cardinality(changed));
    perform {schema}.attempts_kept(discard.subscription, discard.record_ids);
    perform {schema}.reread(discard.subscription, changed);
    return cardinality(changed);
end
$$;
