-- purpose: Return log_now(), computed while the calling statement is planned, so that its executions cost nothing.
--
-- PostgreSQL calls an immutable function without arguments once, while it plans, and keeps the result in the plan. The result
-- of this function is as old as the segments in the same plan. PostgreSQL locks the log before it plans, so nobody detaches a
-- segment or replaces the log until the statement ends. A change of the log, of its segments or of row security makes
-- PostgreSQL discard the plan together with this number. So a plan without a segment never has the number of a log with that
-- segment.
--
-- `log_now` is volatile, so that it takes a snapshot of its own. The snapshot that is used during planning is older than the
-- lock.
--
-- Only statements that read the log may use this function, because nothing else makes PostgreSQL discard the plan.
create or replace function {schema}.log_planned() returns bigint language plpgsql immutable
set search_path = pg_catalog, pg_temp as $$
begin
    return {schema}.log_now();
end
$$;
