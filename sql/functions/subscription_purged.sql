-- purpose: Return the greatest deleted id if a purge may have deleted records from `from_id` or `from_time` on; otherwise null.
--
-- `meta` has the greatest id that purges have deleted. The times of deleted records are not known any more. But ids and times
-- rise together, so all deleted records are older than the first record that is left above that id. If no record is left
-- above it, nobody can tell, and the function assumes that such records were deleted.
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
