-- purpose: log_now(), computed when the calling statement is planned, so that its executions cost nothing
--
-- PostgreSQL calls an immutable function without arguments once, while it plans, and keeps the result in the plan. Here that
-- result is as old as the segments in the same plan: the log is locked before planning begins, so nobody detaches a segment
-- or replaces the log until the statement ends, and whatever changes either, or row security, makes PostgreSQL discard the
-- plan and this number with it. A plan without a segment therefore never bears the number of a log that has it.
--
-- log_now is volatile so that it takes a snapshot of its own. The one in use while PostgreSQL plans is older than the lock.
--
-- Only for statements that read the log: nothing else would discard the plan.
create or replace function {schema}.log_planned() returns bigint language plpgsql immutable
set search_path = pg_catalog, pg_temp as $$
begin
    return {schema}.log_now();
end
$$;
