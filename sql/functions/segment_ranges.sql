-- purpose: Return the segments of the log in the order of their ids, each with its ids from `lower` to below `upper`.
--
-- The default segment comes last and has null in both columns.
create or replace function {schema}.segment_ranges()
returns table (segment oid, name text, lower bigint, upper bigint) language sql stable
set search_path = pg_catalog, pg_temp set row_security = off as $$
    select c.oid, c.relname::text,
           case when b.net then null else coalesce(substring(b.said from 'FROM [(]''?([0-9]+)')::bigint, 0) end,
           case when b.net then null else coalesce(substring(b.said from 'TO [(]''?([0-9]+)')::bigint, 9223372036854775807) end
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as said,
                                pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' as net) b
     where i.inhparent = to_regclass(format('%I.record', {schema_name}))
     order by 3 nulls last
$$;
