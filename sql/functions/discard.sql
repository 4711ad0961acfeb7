-- purpose: dead records are given up: their parked rows go, and what they blocked goes on
--
-- Without its parked row a record counts as done only where the saved cursor has passed it. Where it has not (its
-- partition is being read, or its owner was killed) the record would be read and delivered again: those are left, and
-- come back in `unread`. Locks and parked_version as in replay.
create or replace function {schema}.discard(subscription text, record_ids bigint[])
returns table (discarded integer, unread bigint[]) language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    changed smallint[];
begin
    perform from {schema}.partition p
      where p.subscription = discard.subscription
            and p.partition in (select k.partition from {schema}.parked k
                                 where k.subscription = discard.subscription and k.record_id = any (discard.record_ids))
      order by p.partition
        for no key update;

    with gone as (
        delete from {schema}.parked k
         using {schema}.partition p
         where k.subscription = discard.subscription and k.record_id = any (discard.record_ids) and k.state = 'dead'
               and p.subscription = k.subscription and p.partition = k.partition and k.record_id <= p.last_id
               and (k.record_id <= p.floor_id
                    or not exists (select from {schema}.record r
                                    where r.partition = k.partition and r.id = k.record_id
                                          and not pg_visible_in_snapshot(r.xid, p.snapshot)))
        returning k.partition
    )
    select coalesce(array_agg(gone.partition), '{{}}') into changed from gone;

    update {schema}.partition p set parked_version = parked_version + 1
     where p.subscription = discard.subscription and p.partition = any (changed);

    perform pg_notify({channel}, 'changed ' || discard.subscription);

    discarded := cardinality(changed);
    select coalesce(array_agg(k.record_id order by k.record_id), '{{}}') into unread
      from {schema}.parked k
     where k.subscription = discard.subscription and k.record_id = any (discard.record_ids) and k.state = 'dead';
    return next;
end
$$;
