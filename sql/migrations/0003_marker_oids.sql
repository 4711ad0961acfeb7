-- purpose: a copy whose marker has the right transaction id by chance does not pass for the original
-- breaking: no

-- In a fresh cluster a restored marker may get just the transaction id that it names. So a row beside it names two
-- relations by oid: this table, and the primary key of the log. Oids stay where transaction ids do: pg_upgrade, a clone
-- by TEMPLATE, a schema that is renamed; and REINDEX CONCURRENTLY leaves the index of a partitioned table alone.
-- One oid alone can be the same by chance, too. But the first migration made this key before this table, and pg_dump
-- makes keys when all tables are there, so in a copy of what migrations made one of the two is always another.
-- It is not the value of the marker itself, which is an id after a rebase: programs of before read a floor there. They
-- look at the marker alone, and so can go on; where one of them rebases a copy, this row stays the other cluster's, and
-- whoever knows it asks for a rebase of today.
-- What is a copy gets no such row, and stays one. One that passed for an original until now cannot be told from it.
insert into {schema}.meta (key, value)
select 'marker_oids', m.tableoid::text || ' ' || to_regclass(quote_ident({schema_name}) || '.record_pkey')::oid::text
  from {schema}.meta m
 where m.key = 'marker' and m.xmin = m.xid::xid;
