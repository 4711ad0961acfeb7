-- purpose: delete (dry_run: count) inbox rows older than `retain` s
--
-- One bounded step of a purge, as in purge_records; `place` is {{block, row}} of the table, {{0, 0}} at first. Block by
-- block, because no index knows the age, and from the start each step would pass over what those before it left.
create or replace function {schema}.purge_inbox(retain float8, batch integer, place bigint[], dry_run boolean)
returns table (gone bigint, onward bigint[]) language plpgsql
set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    stretch constant bigint := 1000;
    before  timestamptz := clock_timestamp() - least(retain, 36500 * 86400.0) * interval '1 second';
    size    bigint := pg_relation_size(format('%I.inbox', {schema_name})::regclass)
                      / current_setting('block_size')::bigint;
    found   tid[];
begin
    if not dry_run then
        if not {schema}.locked('purge') then
            return;
        end if;
        perform set_config('synchronous_commit', 'off', true);
    end if;

    select array_agg(old.ctid) into found
      from (select i.ctid
              from {schema}.inbox i
             where i.ctid > format('(%s,%s)', place[1], place[2])::tid
                   and i.ctid < format('(%s,0)', place[1] + stretch)::tid
                   and i.created_at < before
             order by i.ctid limit batch) old;
    gone := coalesce(cardinality(found), 0);
    if gone > 0 and not dry_run then
        delete from {schema}.inbox i where i.ctid = any (found) and i.created_at < before;
        get diagnostics gone = row_count;
        if gone < cardinality(found) then
            perform {schema}.all_written('inbox', count(*), 0) from {schema}.inbox i
              where i.ctid = any (found) and i.created_at < before;
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
