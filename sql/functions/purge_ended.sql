-- purpose: Delete (with dry_run: count) rows of `attempt` or `cancellation` whose record is gone.
--
-- One call is one bounded step of a purge, as in `purge_rows`. The step examines at most `batch` rows, and `onward` says where
-- the next step begins. `purged_id` in `meta` is the greatest record id that was ever deleted, so rows of records above it
-- are not examined.
--
-- A record whose id is below all segments that contain anything is gone. Only for other rows the log is searched. So a step
-- mostly locks no segment, and the function does not take the lock of purges: meanwhile segments can be emptied. A record
-- that is gone never comes back, so two purges at once do no harm.
--
-- The planner settings allow only plans that read the stretch of blocks and nothing else.
create or replace function {schema}.purge_ended(in_table text, batch integer, place bigint[], dry_run boolean)
returns table (gone bigint, onward bigint[]) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set max_parallel_workers_per_gather = 0 set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    stretch constant bigint := 1000;
    path    text := format('%I.%I', {schema_name}, in_table);
    size    bigint := pg_relation_size(path::regclass) / current_setting('block_size')::bigint;
    purged  bigint := (select m.value::bigint from {schema}.meta m where m.key = 'purged_id');
    oldest  bigint := (select coalesce(min(coalesce(s.lower, 0)), 9223372036854775807) from {schema}.segment_ranges() s
                        where pg_relation_size(s.segment) > 0);
    found   tid[];
    ids     bigint[];
    present bigint[];
    kept    bigint;
begin
    if not dry_run then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    -- A scan of a range of ctids reads in their order, and ends at the limit. A sort would read the whole stretch in every step.
    execute format('select array_agg(old.ctid order by old.ctid), array_agg(old.record_id order by old.ctid)'
                   ' from (select i.ctid, i.record_id from %s i where i.ctid > $2 and i.ctid < $3 and i.record_id <= $1'
                   ' limit $4) old', path)
       into found, ids
      using purged, format('(%s,%s)', place[1], place[2])::tid, format('(%s,0)', place[1] + stretch)::tid, batch;

    if cardinality(found) = batch then
        onward := translate(found[batch]::text, '()', '{{}}')::bigint[];
    elsif place[1] + stretch < size then
        onward := array[place[1] + stretch, 0];
    end if;

    if exists (select from unnest(ids) as id where id >= oldest) then
        select array_agg(r.id) into present
          from {schema}.record r
         where r.partition >= 0 and r.id = any (array(select distinct id from unnest(ids) as id where id >= oldest));
        select array_agg(given.place), array_agg(given.id) into found, ids
          from unnest(found, ids) as given (place, id)
         where given.id not in (select unnest(present));
    end if;

    gone := coalesce(cardinality(found), 0);
    if gone > 0 and not dry_run then
        -- The id is tested again, because a new row may have got the ctid of a row that another session has deleted.
        execute format('delete from %s i where i.ctid = any ($1) and i.record_id = any ($2)', path) using found, ids;
        get diagnostics gone = row_count;
        if gone < cardinality(found) then
            execute format('select count(*) from %s i where i.ctid = any ($1) and i.record_id = any ($2)', path)
               into kept using found, ids;
            perform {schema}.all_written(in_table, kept, 0);
        end if;
    end if;
    return next;
end
$$;
