-- purpose: all of a full segment that may still change while it is about to be emptied, in words
--
-- What decides is asked by segment_holds, which takes long for a lock under which polls wait. Cursors do not go back under
-- the lock of purges and nothing is parked behind them, so it stays as it was unless this changes: a record that comes is
-- the newest, or young; a row that is parked, or dead no more, changes a count. The newest are the last thousand.
create or replace function {schema}.segment_state(segment oid, lower bigint, upper bigint)
returns text language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    newest text;
begin
    execute format('select format(''%%s of %%s'', max(r.id), max(r.created_at)) from (select n.id, n.created_at from %s n'
                   ' where n.partition >= 0 order by n.id desc limit 1000) r', segment_state.segment::regclass) into newest;
    return (select format('%s, %s parked, %s of them needed, archived to %s', newest, count(*),
                          count(*) filter (where k.state not in ('dead', 'discarded') or k.due_at is not null),
                          (select m.value from {schema}.meta m where m.key = 'archived_id'))
              from {schema}.parked k
             where k.subscription = any (array(select s.name from {schema}.subscription s))
                   and k.record_id >= segment_state.lower and k.record_id < segment_state.upper);
end
$$;
