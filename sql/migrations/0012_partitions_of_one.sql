-- purpose: a tick finds the partitions of its process among all without reading the others
-- breaking: no

-- Two hundred idle processes read 256 rows each, four times a second, to find the one or two of theirs. Neither column
-- changes in a save, so saves stay HOT; claims, releases and plans, which do change them, are rare.
create index partition_assignee on {schema}.partition (subscription, assignee);
create index partition_owner on {schema}.partition (subscription, owner);
