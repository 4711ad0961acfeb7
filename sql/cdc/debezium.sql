-- purpose: what Debezium needs in the outbox's database, once; `partbox cdc debezium --sql` prints it
--
-- Run it as a superuser, or as the owner of the log who may create roles and publications. The server must run with
-- wal_level = logical, which takes a restart:
--
--     alter system set wal_level = logical;
--
-- The connector makes its replication slot at its first start. From then on the server keeps WAL until the connector has
-- read it. A limit saves the disk, and gives the slot up where it is reached:
--
--     alter system set max_slot_wal_keep_size = '50GB';

begin;

-- The role of the connector. It needs a password (in psql: \password) and a line of pg_hba.conf for this database.
-- Managed services do not let anybody give `replication`: they have a role to grant instead.
do $partbox$
begin
    if not exists (select from pg_roles where rolname = {role_name}) then
        create role {role} login replication;
    end if;
end
$partbox$;

-- For the snapshot of what the log holds already. The stream itself needs no privilege on tables.
grant usage on schema {schema} to {role};
grant select on {schema}.record to {role};

-- Inserts only: what a purge deletes is nobody's event. By the root: segments come and go.
create publication {publication} for table {schema}.record
    with (publish = 'insert', publish_via_partition_root = true);

commit;
