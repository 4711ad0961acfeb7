-- purpose: limits of handlers that operators set while workers run, and what waits for its turn in each process
-- breaking: no

create table {schema}.handler_limit (
    subscription text        not null,
    handler      text        not null,
    rate         float8      check (rate > 0 and rate <> 'NaN'),
    at_once      float8      check (at_once >= 1 and at_once = floor(at_once) and at_once <> 'NaN'),
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text        not null,
    primary key (subscription, handler),
    check (rate is not null or at_once is not null)
);

comment on table {schema}.handler_limit is
    'What operators have set, bound by bound: calls that may start in a second, and that may run at once, in the whole '
    'subscription. Infinity: no bound. Null: as the handler declares it, which it does for both without a row.';

alter table {schema}.instance add column limits json;

comment on column {schema}.instance.limits is
    'An object: `kept` is an array of one for each handler with a limit, `at` when the process has written it (Unix time).';
