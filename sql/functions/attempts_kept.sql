-- purpose: keep the last ten rows of these records in `attempt`; whoever calls it has locked their partition rows
--
-- The settings stand for statistics of a time when there were none, which an outage outgrows within seconds.
create or replace function {schema}.attempts_kept(subscription text, record_ids bigint[])
returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    delete from {schema}.attempt a
     using unnest(attempts_kept.record_ids) as id
     cross join lateral (select k.at from {schema}.attempt k
                          where k.subscription = attempts_kept.subscription and k.record_id = id
                          order by k.at desc offset 9 limit 1) tenth
     where a.subscription = attempts_kept.subscription and a.record_id = id and a.at < tenth.at;
end
$$;
