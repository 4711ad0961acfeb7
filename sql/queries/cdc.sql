-- name: cdc_server
-- The query returns one row: wal_level, whether a publication of that name exists, and whether that publication publishes inserts into
-- the log as inserts into `record`.
select current_setting('wal_level'),
       exists (select from pg_publication where pubname = %(publication)s),
       exists (select from pg_publication p
                 join pg_publication_tables t on t.pubname = p.pubname
                where p.pubname = %(publication)s and p.pubinsert and p.pubviaroot
                      and t.schemaname = {schema_name} and t.tablename = 'record')

-- name: cdc_snapshot
-- Debezium runs this query when it starts for the first time. The order of the primary key keeps the order of each aggregate.
select * from {schema}.record order by partition, id

-- name: cdc_heartbeat
-- The statement writes something to the WAL that the connector receives. Otherwise the replication slot of a quiet log would retain the
-- WAL that others write.
select pg_logical_emit_message(false, 'partbox', '')
