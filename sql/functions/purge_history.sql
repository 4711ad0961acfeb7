-- purpose: delete (dry_run: count) rows of `attempt` whose record is gone, or of another table of the history that are older
-- than `retain` s
--
-- One bounded step of a purge, block by block as in purge_inbox. Attempts go after their record, whose id is up to the
-- greatest that ever went: of what lies above, nothing is looked for.
create or replace function {schema}.purge_history(
    history text, retain float8, batch integer, place bigint[], dry_run boolean
) returns table (gone bigint, onward bigint[]) language plpgsql
set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    stretch constant bigint := 1000;
    path   text := format('%I.%I', {schema_name}, history);
    before timestamptz := clock_timestamp() - least(retain, 36500 * 86400.0) * interval '1 second';
    size   bigint := pg_relation_size(path::regclass) / current_setting('block_size')::bigint;
    purged bigint := (select m.value::bigint from {schema}.meta m where m.key = 'purged_id');
    ended  text := case history when 'attempt' then
                       format('h.record_id <= $4 and not exists (select from %I.record r'
                              ' where r.partition >= 0 and r.id = h.record_id)', {schema_name})
                   else 'h.at < $5' end;
    found  tid[];
begin
    if not dry_run then
        if not {schema}.locked('purge') then
            return;
        end if;
        perform set_config('synchronous_commit', 'off', true);
    end if;

    execute format('select array_agg(old.ctid) from (select h.ctid from %s h where h.ctid > $1 and h.ctid < $2 and %s'
                   ' order by h.ctid limit $3) old', path, ended)
       into found
      using format('(%s,%s)', place[1], place[2])::tid, format('(%s,0)', place[1] + stretch)::tid, batch, purged, before;
    gone := coalesce(cardinality(found), 0);
    if gone > 0 and not dry_run then
        execute format('delete from %s h where h.ctid = any ($1)', path) using found;
    end if;

    if cardinality(found) = batch then
        onward := translate(found[batch]::text, '()', '{{}}')::bigint[];
    elsif place[1] + stretch < size then
        onward := array[place[1] + stretch, 0];
    end if;
    return next;
end
$$;
