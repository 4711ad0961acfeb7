-- purpose: Return a text with every fact about a full segment that may still change while the segment is about to be emptied.
--
-- `segment_holds` decides whether a segment can be emptied, but it takes too long to run under a lock that makes polls wait.
-- Under the lock of purges no cursor goes back, and nothing is parked behind a cursor. So the decision is valid until this
-- text changes: a new record is the newest or young, and a row that is parked, or is no longer dead, changes a count. The
-- thousand records with the highest ids count as the newest.
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
