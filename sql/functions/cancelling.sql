-- purpose: whether a record is cancelled, or may be: somebody has locked it some time
--
-- For a poll, which writes nothing: `may_start` decides. It reads the record now, not as the poll's snapshot has it.
create or replace function {schema}.cancelling(part smallint, record_id bigint)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
begin
    return exists (select from {schema}.record r
                    where r.partition = cancelling.part and r.id = cancelling.record_id and r.xmax <> 0)
           or exists (select from {schema}.cancellation c where c.record_id = cancelling.record_id);
end
$$;
