-- purpose: Delete (with dry_run: count) rows of a table that are older than `retain` seconds.
--
-- One call is one bounded step of a purge, as in `purge_records`. `place` and `onward` are {{block, row}} of the table, and
-- `place` is {{0, 0}} at first. The function reads block by block, because no index contains the age. If each step began at
-- the start of the table, it would pass over everything that the earlier steps left.
--
-- The planner settings allow only plans that read the stretch of blocks and nothing else.
create or replace function {schema}.purge_rows(
    in_table text, retain float8, batch integer, place bigint[], dry_run boolean
) returns table (gone bigint, onward bigint[]) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set max_parallel_workers_per_gather = 0 set jit = off set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    stretch constant bigint := least(1000, 2 * batch);
    path    text := format('%I.%I', {schema_name}, in_table);
    size    bigint := pg_relation_size(path::regclass) / current_setting('block_size')::bigint;
    before  timestamptz := clock_timestamp() - least(retain, 36500 * 86400.0) * interval '1 second';
    ended   text := case when in_table in ('idempotency', 'inbox') then 'i.created_at < $1' else 'i.at < $1' end;
    found   tid[];
    kept    bigint;
begin
    if not dry_run then
        if not {schema}.locked('purge') then
            return;
        end if;
        perform set_config('synchronous_commit', 'off', true);
    end if;

    -- A scan of a range of ctids reads in their order, and ends at the limit. A sort would read the whole stretch in every step.
    execute format('select array_agg(old.ctid order by old.ctid) from (select i.ctid from %s i where i.ctid > $2 and i.ctid < $3 and %s'
                   ' limit $4) old', path, ended)
       into found
      using before, format('(%s,%s)', place[1], place[2])::tid, format('(%s,0)', place[1] + stretch)::tid, batch;
    gone := coalesce(cardinality(found), 0);
    if gone > 0 and not dry_run then
        -- The condition is tested again, because a new row may have got the ctid of a row that another session has deleted.
        execute format('delete from %s i where i.ctid = any ($2) and %s', path, ended) using before, found;
        get diagnostics gone = row_count;
        if gone < cardinality(found) then
            execute format('select count(*) from %s i where i.ctid = any ($2) and %s', path, ended)
               into kept using before, found;
            perform {schema}.all_written(in_table, kept, 0);
        end if;
    end if;

    if cardinality(found) = batch then
        onward := translate(found[batch]::text, '()', '{{}}')::bigint[];
    elsif place[1] + stretch < size then
        onward := array[place[1] + stretch, 0];
    end if;
    return next;
end
$$;
