-- purpose: Prepare the outbox's database for Debezium, once. `partbox cdc debezium --sql` prints this script.
--
-- Run the script as a superuser, or as the owner of the log with the right to create roles and publications. The server must
-- run with wal_level = logical. A change of wal_level takes a restart:
--
--     alter system set wal_level = logical;
--
-- The connector creates its replication slot at its first start. From then on the server keeps WAL until the connector has
-- read it. A limit saves the disk, but the server gives up the slot when the limit is reached:
--
--     alter system set max_slot_wal_keep_size = '50GB';

begin;

-- Create the role of the connector. The role needs a password (in psql: \password) and an entry in pg_hba.conf for this
-- database. A managed service lets nobody grant `replication`, and has a role to grant instead.
do $partbox$
begin
    if not exists (select from pg_roles where rolname = {role_name}) then
        create role {role} login replication;
    end if;
end
$partbox$;

-- The connector reads the table only for its first snapshot of the existing records. The stream needs no privilege on tables.
grant usage on schema {schema} to {role};
grant select on {schema}.record to {role};

-- Publish inserts only, because the deletions of a purge are no events. Publish them under the name of the root table,
-- because segments are created and dropped.
create publication {publication} for table {schema}.record
    with (publish = 'insert', publish_via_partition_root = true);

commit;
