-- purpose: Publish an event whose payload is text. See the function for json in `publish.sql`.
--
-- The function has no settings of its own, so PostgreSQL replaces a call by the function's body, and the call costs no more.

create or replace function {schema}.publish(
    event_type      text,
    payload         text,
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
