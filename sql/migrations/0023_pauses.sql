-- purpose: pauses of handlers, and of single values, event types and tenants, that operators set while workers run
-- breaking: no

-- A rate of 0 pauses a handler. Programs that do not know it start nothing of such a handler, either.
alter table {schema}.handler_limit drop constraint handler_limit_rate_check;
alter table {schema}.handler_limit add constraint handler_limit_rate_check check (rate >= 0 and rate <> 'NaN');

create table {schema}.pause (
    subscription text        not null,
    kind         text        not null check (kind in ('value', 'type', 'tenant')),
    handler      text        not null default '' check ((handler <> '') = (kind = 'value')),
    value        text        not null,
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text        not null,
    primary key (subscription, kind, handler, value)
);

comment on table {schema}.pause is
    'What operators have paused, and since when: a value of the `limit_by` or `circuit_by` of a handler, an event type, or a '
    'tenant. `handler` is empty but for a value. Nothing of it starts until its row is gone. (A handler is paused by a rate of 0 '
    'in `handler_limit`.)';
