-- purpose: Return true if no id was drawn after `drawn`, the digest of the partitions of `me` is `known`, and no row is due.
--
-- A row is due if it is a parked row of the subscription that has a due time, however late. It is a function for the same
-- reason as `digest`.
create or replace function {schema}.is_calm(subscription text, me uuid, known bigint, drawn bigint) returns boolean
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
begin
    return {drawn} = is_calm.drawn
           and {schema}.digest(is_calm.subscription, me) is not distinct from known
           and not exists (select from {schema}.parked k where k.subscription = is_calm.subscription and k.due_at is not null);
end
$$;
