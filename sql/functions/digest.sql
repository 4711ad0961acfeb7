-- purpose: Return a number that changes with everything that a tick reports about the partitions of an instance and about limits.
--
-- `me` is the instance. The result is null if it owns no partition and is assigned none.
--
-- Each process asks four times a second. Behind a pooler, nothing is prepared, and planning a query takes ten times as long as
-- running it. A session keeps the plans of a plpgsql function, so the query is in a function. The settings make each plan fit
-- however many partitions there are: an index finds each partition of `me`.
create or replace function {schema}.digest(subscription text, me uuid) returns bigint language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
begin
    -- The function hashint8extended with two arguments is faster than the hash of a row, for which the server must find the
    -- type of each column.
    return (
        select bit_xor(hashint8extended(p.epoch, (p.parked_version << 11) + (p.partition::bigint << 3)
                           + (coalesce(p.assignee = me, false)::integer << 2) + (coalesce(p.owner = me, false)::integer << 1)
                           + (p.owner is null)::integer))
          from (select * from {schema}.partition a where a.subscription = digest.subscription and a.assignee = me
                union all
                select * from {schema}.partition o
                 where o.subscription = digest.subscription and o.owner = me and o.assignee is distinct from me) as p
    ) # (
        -- Mostly an operator has set no limits.
        select coalesce(bit_xor(hashtextextended(row(l.handler, l.rate, l.at_once)::text, 0)), 0)
          from {schema}.handler_limit l where l.subscription = digest.subscription
    ) # (
        select coalesce(bit_xor(hashtextextended(row(p.kind, p.handler, p.value)::text, 1)), 0)
          from {schema}.pause p where p.subscription = digest.subscription
    );
end
$$;
