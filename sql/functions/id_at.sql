-- purpose: Return approximately the first record id that was published at `moment` or later.
--
-- The function halves the range of ids again and again, so it reads about thirty records of any log. `created_at` rises with
-- the ids, except where transactions are open at the same time or a publisher sets the time.
create or replace function {schema}.id_at(moment timestamptz) returns bigint language sql stable
set search_path = pg_catalog, pg_temp set row_security = off as $$
    with recursive halves (low, high) as (
        select coalesce((select r.id from {schema}.record r where r.partition >= 0 order by r.id limit 1), 1), {schema}.drawn() + 1
        union all
        select case when probe.created_at < moment then probe.id + 1 else h.low end,
               case when probe.created_at < moment then h.high else (h.low + h.high) / 2 end
          from halves h
          left join lateral (
               select r.id, r.created_at from {schema}.record r
                where r.partition >= 0 and r.id >= (h.low + h.high) / 2 and r.id < h.high
                order by r.id limit 1) probe on true
         where h.low < h.high
    )
    select max(low) from halves
$$;
