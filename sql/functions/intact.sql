-- purpose: Return true if all published records can be read; raise an error if a table or a segment of the log is missing.
--
-- If another table has the name of a partbox table, or if somebody detaches a segment by hand, queries return fewer rows and
-- no error. Cursors would then pass records that nobody has seen. A function that starts to read calls this function first. A
-- function that deletes rows that nobody needs calls it last, when the tables that it has read are locked.
create or replace function {schema}.intact() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    noted  json;
    wrong  text;
begin
    select m.value::json into noted from {schema}.meta m where m.key = 'tables';
    if not found then
        raise exception 'partbox: table meta of schema % is not the one that partbox has made', {schema_name}
            using errcode = 'object_not_in_prerequisite_state', hint = 'Put it back; if it is ours, run `partbox migrate`.';
    end if;
    select string_agg(t.key, ', ' order by t.key) into wrong
      from json_each_text(noted) t
     where to_regclass(format('%I.%I', {schema_name}, t.key))::oid is distinct from t.value::oid;
    if wrong is not null then
        raise exception 'partbox: in schema % something else has the place of: %', {schema_name}, wrong
            using errcode = 'object_not_in_prerequisite_state',
                  hint = format('Put back what was there. If nothing is missing in what is there now, adopt it:'
                                ' delete from %I.meta where key = ''tables'', then run `partbox migrate`.', {schema_name});
    end if;

    -- A segment that `segment_detach` has taken out is empty and has the comment below, so it is not missing. Neither is a
    -- segment that every cursor has passed. The lower bound of the next segment tells where the detached segment ended. The
    -- cursors are read only if there is such a segment.
    with detached as materialized (
        select c.oid, c.relname
          from pg_class c
          left join pg_inherits i on i.inhrelid = c.oid and not i.inhdetachpending
         where c.relname like 'record\_%' and c.relname ~ '^record_([0-9]+|default)$'
               and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = {schema_name})
               and c.relkind = 'r' and i.inhrelid is null and pg_relation_size(c.oid) > 0
               and obj_description(c.oid, 'pg_class') is distinct from 'Detached from the log, to be dropped.'
    )
    select string_agg(d.relname, ', ' order by d.oid) into wrong
      from detached d
     where d.relname = 'record_default'
           or (select min(least(p.floor_id, p.last_id)) from {schema}.partition p)
              < (select least(min(s.lower) - 1, {schema}.drawn()) from {schema}.segment_ranges() s
                  where s.lower > substring(d.relname from '[0-9]+')::numeric);
    if wrong is not null then
        raise exception 'partbox: detached from the log of schema %, with records that some cursor has not passed: %',
                        {schema_name}, wrong
            using errcode = 'object_not_in_prerequisite_state', hint = 'Attach it again, with the ids that it had.';
    end if;
    return true;
end
$$;
