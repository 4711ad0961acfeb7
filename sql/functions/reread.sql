-- purpose: Have the owners of the given partitions read the parked rows again within a tick. The caller has locked the partition rows.
create or replace function {schema}.reread(subscription text, partitions smallint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    raised bigint;
begin
    update {schema}.partition p set parked_version = parked_version + 1
     where p.subscription = reread.subscription and p.partition = any (reread.partitions);
    get diagnostics raised = row_count;
    perform {schema}.all_written('partition', (select count(distinct number) from unnest(partitions) as number), raised);
    perform {schema}.tell('changed ' || reread.subscription);
end
$$;
