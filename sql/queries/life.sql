-- name: life_begin
-- The sequence `life` and its value, which is set if a crash has taken it. No row where there is none that can tell. Two who
-- set it at once are of two lives, for one of them: it finds that out at its next statement, and begins again. A lock that
-- one waited for would be worse: anybody in the database could hold an advisory one.
select found.oid::bigint,
       coalesce(pg_sequence_last_value(found.oid),
                setval(found.oid, (extract(epoch from clock_timestamp()) * 1000)::bigint))
  from (select c.oid::regclass
          from pg_class c
         where c.oid = to_regclass(quote_ident({schema_name}) || '.life')
               and case when c.relkind = 'S' and c.relpersistence = 'u'  -- the order of AND is the planner's
                        then has_sequence_privilege(c.oid, 'SELECT') and has_sequence_privilege(c.oid, 'UPDATE')
                        else false end) as found
-- name: life_anew
-- Make it anew if it cannot be read; see the function.
select {schema}.life_anew()
