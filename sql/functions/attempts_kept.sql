-- purpose: Delete rows of the given records from `attempt`. The newest ten rows of each record stay.
--
-- The caller has locked the partition rows of the records.
--
-- The settings make the query read the attempts of each record by the primary key. With statistics from before an outage the
-- planner would otherwise compare each record with every row.
create or replace function {schema}.attempts_kept(subscription text, record_ids bigint[])
returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    old tid[];
begin
    select array_agg(older.ctid) into old
      from unnest(attempts_kept.record_ids) as id
     cross join lateral (select a.ctid from {schema}.attempt a
                          where a.subscription = attempts_kept.subscription and a.record_id = id
                          order by a.at desc offset 10) older;
    if old is not null then
        delete from {schema}.attempt a where a.ctid = any (old) and a.record_id = any (attempts_kept.record_ids);
    end if;
end
$$;
