-- purpose: the greatest id that a purge has deleted, if it may have deleted what is asked for; else null
--
-- Asked for is what follows from an id, or from a time. What was deleted had ids up to the one that purges keep in
-- `meta`, and its times are not known any more; but ids and times rise together, so all of it is older than the first
-- record that is left above that id. Where none is left there, nobody can tell, and the answer is the cautious one.
create or replace function {schema}.subscription_purged(from_id bigint, from_time timestamptz)
returns bigint language sql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
    select purged.id
      from (select m.value::bigint as id from {schema}.meta m where m.key = 'purged_id') purged
     where purged.id >= from_id
        or from_time <= coalesce((select min(kept.created_at)
                                    from generate_series(0, 255) as number
                                   cross join lateral (
                                         select r.created_at from {schema}.record r
                                          where r.partition = number::smallint and r.id > purged.id
                                          order by r.id limit 1) kept), 'infinity')
$$;
