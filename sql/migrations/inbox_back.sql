-- purpose: after the baseline of a schema that had only an inbox: puts that back, as the baseline made it

drop table {schema}.inbox;
alter table {schema}.inbox_aside rename to inbox;
alter index {schema}.inbox_aside_pkey rename to inbox_pkey;
