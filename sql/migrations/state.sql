-- purpose: after every migration, notes the program's scripts and what they have made: the same again have nothing to do

insert into {schema}.meta (key, value)
values ('migrated', {scripts} || ' ' || {schema}.schema_state())
    on conflict (key) do update set value = excluded.value;
