-- purpose: Return the ids that a constraint keeps out of the default segment: from `lower` to below `upper`. No constraint, no row.
--
-- `valid` is true once a search has proven that the default segment has none of the ids.
create or replace function {schema}.segment_proof()
returns table (lower bigint, upper bigint, valid boolean) language sql stable
set search_path = pg_catalog, pg_temp set row_security = off as $$
    select substring(d.said from 'id < ''?([0-9]+)')::bigint, substring(d.said from 'id >= ''?([0-9]+)')::bigint, c.convalidated
      from {schema}.segment_ranges() s
      join pg_constraint c on c.conrelid = s.segment and c.conname = 'segment_proof'
     cross join lateral (select translate(pg_get_constraintdef(c.oid), '"', '') as said) d
     where s.lower is null
$$;
