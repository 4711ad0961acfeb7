-- purpose: Return whether a record is cancelled, or may be cancelled because its row is or was locked.
--
-- A poll calls this function, because a poll writes nothing. `may_start` makes the final decision. `xmax` also shows locks
-- that are newer than the poll's snapshot.
create or replace function {schema}.cancelling(part smallint, record_id bigint)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
begin
    return exists (select from {schema}.record r
                    where r.partition = cancelling.part and r.id = cancelling.record_id and r.xmax <> 0)
           or exists (select from {schema}.cancellation c where c.record_id = cancelling.record_id);
end
$$;
