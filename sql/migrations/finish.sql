-- purpose: ends every migration with what the schema now is, and statistics that autovacuum would leave out for long

insert into {schema}.meta (key, value)
values ('schema_version', {version}), ('breaking_version', {breaking})
    on conflict (key) do update set value = excluded.value where meta.value is distinct from excluded.value;

-- The tables that hold events, by their oids: another one in the place of one of them holds none. See `intact`.
insert into {schema}.meta (key, value)
select 'tables', {schema}.tables_now()
    on conflict (key) do nothing;

-- The marker must have been written by this transaction itself: a row that a savepoint has written bears another id.
do $$
begin
    if exists (select from {schema}.meta m
                where m.key = 'marker' and m.xid = pg_current_xact_id() and m.xmin <> m.xid::xid) then
        raise exception 'partbox: the schema cannot be made within a savepoint: migrate outside of one (psql: ON_ERROR_ROLLBACK off)';
    end if;
end
$$;

select {schema}.life_anew();
select {schema}.mark();

analyze {schema}.partition, {schema}.subscription, {schema}.instance, {schema}.parked, {schema}.meta;
