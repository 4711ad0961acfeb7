-- purpose: which rows of another outbox's table were imported, so that an import that is repeated takes each row once
-- breaking: no

-- `source`: the table's name with its schema; `key`: its key as text. A row is written in the transaction that publishes
-- what it names. It is not the place in the table up to which all was imported: what commits late has a lower id, and a
-- row of the old outbox changes whenever somebody updates its status.
create table {schema}.imported (
    source text not null,
    key    text not null,
    primary key (source, key)
);
