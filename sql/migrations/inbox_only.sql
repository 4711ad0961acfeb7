-- purpose: after the first migration, for consumers elsewhere: leaves the inbox, and a meta that says there is no more

drop view {schema}.record_status;
drop table {schema}.record, {schema}.subscription, {schema}.partition, {schema}.instance, {schema}.parked,
           {schema}.idempotency;
drop sequence {schema}.record_id_seq;
delete from {schema}.meta;
insert into {schema}.meta (key, value)
values ('schema_version', '0'), ('breaking_version', '0'), ('inbox_only', 'true');
