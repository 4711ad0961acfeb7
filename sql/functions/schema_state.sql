-- purpose: Return a hash of the objects and privileges of the schema, by which a migration sees that there is nothing to do.
--
-- The hash changes if a function is replaced, or if a function, table, view, sequence or column is created, dropped or gets
-- other privileges, or if the rows of `meta` that a migration writes are rewritten. Segments of the log come and go without a
-- migration, and are left out. The sequence `life` can become unreadable: that changes the hash too.
create or replace function {schema}.schema_state() returns text language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
    life text := 'readable';
begin
    begin
        perform pg_sequence_last_value(to_regclass(format('%I.life', {schema_name})));
    exception when internal_error then
        life := 'unreadable';
    end;
    return (select md5(string_agg(object, ' ' order by object))
              from (select format('life %s', life) as object
                    union all
                    select format('schema %s %s', n.nspowner, n.nspacl)
                      from pg_namespace n where n.nspname::text = {schema_name}
                    union all
                    select format('function %s %s', p.oid, p.xmin)
                      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                     where n.nspname::text = {schema_name}
                    union all
                    select format('relation %s %s %s %s', c.oid, c.relname, c.relowner, c.relacl)
                      from pg_class c join pg_namespace n on n.oid = c.relnamespace
                     where n.nspname::text = {schema_name} and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition
                    union all
                    select format('column %s %s %s', a.attrelid, a.attnum, a.attacl)
                      from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
                     where n.nspname::text = {schema_name} and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition
                           and a.attacl is not null
                    union all
                    select format('row %s %s %s', m.key, m.xmin, m.value)
                      from {schema}.meta m
                     where m.key in ('schema_version', 'breaking_version', 'inbox_only', 'tables', 'marker', 'marker_oids',
                                     'marker_witness', 'lock purge', 'lock segments')) as objects);
end
$$;
