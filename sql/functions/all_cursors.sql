-- purpose: Return true if the subscription has the row of every partition; raise an error if a row is missing.
--
-- If `subscription` is null, the function checks every subscription.
--
-- A worker cannot notice a missing row by itself: a partition without a row looks like a partition that another process owns,
-- or that has no new records. A purge does not call this function, because it keeps all records of such a partition anyway.
create or replace function {schema}.all_cursors(subscription text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    wrong text;
begin
    select string_agg(format('%s (%s of 256)', lacking.name, lacking.there), ', ' order by lacking.name) into wrong
      from (select s.name, count(p.partition) as there
              from {schema}.subscription s
              left join {schema}.partition p on p.subscription = s.name
             where all_cursors.subscription is null or s.name = all_cursors.subscription
             group by s.name having count(p.partition) < 256) lacking;
    if wrong is not null then
        raise exception 'partbox: rows of table partition of schema % are gone, of subscription %', {schema_name}, wrong
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Put the rows back as they were, or pause and drop the subscription and create it again.';
    end if;
    return true;
end
$$;
