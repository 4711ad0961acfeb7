-- purpose: before the baseline of a schema that had only an inbox: puts that aside, with its rows and grants

drop table {schema}.meta;
alter table {schema}.inbox rename to inbox_aside;
alter index {schema}.inbox_pkey rename to inbox_aside_pkey;
