-- purpose: before the end of every migration: the rows of `meta` that the function `locked` locks

insert into {schema}.meta (key) values ('lock purge'), ('lock segments') on conflict (key) do nothing;
