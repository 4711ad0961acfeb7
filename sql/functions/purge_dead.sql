-- purpose: Delete (with dry_run: count) dead parked rows that died more than `retain` seconds ago.
--
-- The function also deletes discarded rows whose records are gone. The records of the dead rows are deleted later, by
-- `purge_records`.
--
-- One call is one bounded step of a purge, as in `purge_records`. `place` and `onward` are {{block, row}} of the table, and
-- `place` is {{0, 0}} at first.
--
-- A row is kept if the saved cursor has not passed it. Such a row tells the owner that the record was consumed. Without the
-- row the record would be delivered again.
create or replace function {schema}.purge_dead(retain float8, batch integer, place bigint[], dry_run boolean)
returns table (gone bigint, onward bigint[]) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    stretch constant bigint := least(1000, 2 * batch);
    before     timestamptz := clock_timestamp() - least(retain, 36500 * 86400.0) * interval '1 second';
    size       bigint := pg_relation_size(format('%I.parked', {schema_name})::regclass)
                         / current_setting('block_size')::bigint;
    names      text[];
    partitions smallint[];
    ids        bigint[];
    places     tid[];
begin
    if not dry_run then
        if not {schema}.locked('purge') then
            return;
        end if;
        perform set_config('synchronous_commit', 'off', true);
    end if;

    select array_agg(found.subscription), array_agg(found.partition), array_agg(found.record_id), array_agg(found.ctid)
      into names, partitions, ids, places
      from (select k.subscription, k.partition, k.record_id, k.ctid
              from {schema}.parked k
              join {schema}.partition p on p.subscription = k.subscription and p.partition = k.partition
             where k.ctid > format('(%s,%s)', place[1], place[2])::tid
                   and k.ctid < format('(%s,0)', place[1] + stretch)::tid
                   and k.record_id <= least(p.floor_id, p.last_id)
                   and ({schema}.expired_dead(k, before)
                        or k.state = 'discarded'
                           and not exists (select from {schema}.record r
                                            where r.partition = k.partition and r.id = k.record_id))
             order by k.ctid limit batch) found;
    gone := coalesce(cardinality(ids), 0);

    if gone > 0 and not dry_run then
        -- Every write of parked rows locks their partition rows first, in order. The deletion checks the rows again under the
        -- lock, so a row that a faster replay has changed is kept.
        perform from {schema}.partition p
          where (p.subscription, p.partition) in (select * from unnest(names, partitions))
          order by p.subscription, p.partition
            for no key update;
        with deleted as (
            delete from {schema}.parked k
             where k.ctid = any (places) and k.record_id = any (ids)
                   and (k.state = 'discarded' or {schema}.expired_dead(k, before))
            returning k.subscription, k.partition
        ), raised as (
            -- The raised version makes the owner load its parked rows again.
            update {schema}.partition p
               set parked_version = parked_version + 1
              from (select distinct d.subscription, d.partition from deleted d) d
             where p.subscription = d.subscription and p.partition = d.partition
        )
        select count(*) into gone from deleted;
        perform {schema}.all_written('parked', count(*), 0) from {schema}.parked k
          where k.ctid = any (places) and k.record_id = any (ids)
                and (k.state = 'discarded' or {schema}.expired_dead(k, before));
    end if;

    if cardinality(ids) = batch then
        onward := translate(places[batch]::text, '()', '{{}}')::bigint[];
    elsif place[1] + stretch < size then
        onward := array[place[1] + stretch, 0];
    end if;
    return next;
end
$$;
