-- purpose: ends every migration with what the schema now is, and statistics that autovacuum would leave out for long

insert into {schema}.meta (key, value)
values ('schema_version', {version}), ('breaking_version', {breaking})
    on conflict (key) do update set value = excluded.value where meta.value is distinct from excluded.value;

analyze {schema}.partition, {schema}.subscription, {schema}.instance, {schema}.parked, {schema}.meta;
