-- name: cdc_server
-- One row: wal_level; whether there is a publication of that name; whether it gives the log's inserts as those of `record`.
select current_setting('wal_level'),
       exists (select from pg_publication where pubname = %(publication)s),
       exists (select from pg_publication p
                 join pg_publication_tables t on t.pubname = p.pubname
                where p.pubname = %(publication)s and p.pubinsert and p.pubviaroot
                      and t.schemaname = {schema_name} and t.tablename = 'record')

-- name: cdc_snapshot
-- What Debezium selects when it first starts: in the order of the primary key, which keeps that of each aggregate.
select * from {schema}.record order by partition, id

-- name: cdc_heartbeat
-- Something in the WAL that the connector gets: without it the slot of a quiet log would keep what others write.
select pg_logical_emit_message(false, 'partbox', '')
