-- purpose: how a snapshot is stored, which has a number for each transaction that was open
-- breaking: no

-- A snapshot with thousands of open transactions is 8 bytes for each. Compressing it costs 15 times as much as writing
-- it, at every save, for each of the partitions.
alter table {schema}.partition alter column snapshot set storage external;
alter table {schema}.progress_note alter column snapshot set storage external;
