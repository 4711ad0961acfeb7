-- purpose: cancellations: delayed events that were cancelled before their time, by whom and when
-- breaking: no

-- Of a record and not of a subscription, so that a subscription that comes later, or is set back, does not run it either.
-- It goes after its record.
create table {schema}.cancellation (
    record_id bigint      primary key,
    at        timestamptz not null default clock_timestamp(),
    who       text        not null
);

create index cancellation_at on {schema}.cancellation (at);

comment on table {schema}.cancellation is 'Delayed events that were cancelled in time: no handler runs them. See partbox.cancel.';
