-- purpose: after the baseline, for consumers elsewhere: leaves the inbox, and a meta that says there is no more

drop view {schema}.record_status, {schema}.backlog, {schema}.dead, {schema}.archiving;
drop table {schema}.record, {schema}.subscription, {schema}.partition, {schema}.instance, {schema}.parked,
           {schema}.idempotency, {schema}.imported;
drop sequence {schema}.record_id_seq, {schema}.life, {schema}.bell;
delete from {schema}.meta;
insert into {schema}.meta (key, value)
values ('schema_version', '0'), ('breaking_version', '0'), ('inbox_only', 'true');
