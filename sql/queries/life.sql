-- name: life_begin
-- The sequence `life` and its value, which is set if a crash has taken it. No row where there is none that can tell.
select found.oid::bigint,
       coalesce(pg_sequence_last_value(found.oid),
                setval(found.oid, (extract(epoch from clock_timestamp()) * 1000)::bigint))
  from (select c.oid::regclass
          from pg_class c
         where c.oid = to_regclass(quote_ident({schema_name}) || '.life')
               and case when c.relkind = 'S' and c.relpersistence = 'u'  -- the order of AND is the planner's
                        then has_sequence_privilege(c.oid, 'SELECT') and has_sequence_privilege(c.oid, 'UPDATE')
                        else false end) as found
 cross join (select pg_advisory_xact_lock(hashtext('partbox.life'), hashtext({schema_name})) offset 0) as alone
