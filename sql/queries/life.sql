-- name: life_begin
-- The query returns the oid of the sequence `life` and its value. A crash resets the value to null, and then the query sets a new one.
-- The query returns no row if there is no such sequence or this role may not use it. If two sessions set the value at the same time, one
-- of them holds a value that was overwritten. That session finds out at its next statement, and begins again. A lock that sessions wait
-- for would be worse, because every role of the database could hold an advisory lock.
select found.oid::bigint,
       coalesce(pg_sequence_last_value(found.oid),
                setval(found.oid, (extract(epoch from clock_timestamp()) * 1000)::bigint))
  from (select c.oid::regclass
          from pg_class c
         where c.oid = to_regclass(quote_ident({schema_name}) || '.life')
               -- The CASE fixes the order of the tests. The planner may reorder the operands of AND.
               and case when c.relkind = 'S' and c.relpersistence = 'u'
                        then has_sequence_privilege(c.oid, 'SELECT') and has_sequence_privilege(c.oid, 'UPDATE')
                        else false end) as found
-- name: life_anew
-- The query creates the sequence again if it cannot be read; see the function `life_anew`.
select {schema}.life_anew()
