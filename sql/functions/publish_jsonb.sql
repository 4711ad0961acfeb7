-- purpose: publishes an event whose payload is jsonb: `publish`, which says more
--
-- Without settings of its own, so that PostgreSQL puts its body in the place of a call, which then costs no more.

create or replace function {schema}.publish(
    event_type      text,
    payload         jsonb,
    aggregate_type  text          default '__GLOBAL__',
    aggregate_id    text          default '__NOT_GIVEN__',
    tenant_id       text          default null,
    headers         anycompatible default null,
    available_at    timestamptz   default null,
    deliver_after   interval      default null,
    idempotency_key text          default null
) returns uuid
language sql volatile as $$
    select {schema}.publish(event_type, payload::pg_catalog.json, aggregate_type, aggregate_id, tenant_id,
                            headers, available_at, deliver_after, idempotency_key)
$$;
