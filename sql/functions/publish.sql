-- purpose: publishes an event from SQL, with the checks of the Python side; its id, or null if the key was used before
--
-- publish_jsonb and publish_text are the same for other types of the payload; a literal without a type is text to PostgreSQL.
-- The headers are of a type that PostgreSQL finds out, and not of one more type for each of these: two functions that differ in an
-- argument with a default alone are not told apart by a call that leaves it out.
-- A delay is elapsed time: an interval of days, added as it is, would be a day of the session's time zone, which may have 23 hours.
-- An aggregate_id that is null beside an aggregate_type is refused, so one that is left out has a default of its own.

create or replace function {schema}.publish(
    event_type      text,
    payload         json,
    aggregate_type  text          default '__GLOBAL__',
    aggregate_id    text          default '__NOT_GIVEN__',
    tenant_id       text          default null,
    headers         anycompatible default null,
    available_at    timestamptz   default null,
    deliver_after   interval      default null,
    idempotency_key text          default null
) returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
    new_id  uuid := {schema}.new_event_id();
    keyed   text := nullif(aggregate_id, '__NOT_GIVEN__');
    part    smallint := {schema}.partition_of(coalesce(keyed, new_id::text));
    texts   json := headers::text::json;
    bell    oid := to_regclass({bell});  -- none before PostgreSQL 15
    problem text := {schema}.publish_problem(
        event_type, payload, aggregate_type, aggregate_id, tenant_id, texts, available_at, deliver_after, idempotency_key);
begin
    if problem is not null then
        raise exception 'partbox: %', problem using errcode = 'invalid_parameter_value';
    end if;
    if idempotency_key is not null then
        -- Waits for a transaction that holds the key, and goes on only if that one is rolled back.
        insert into {schema}.idempotency (key, event_id) values (idempotency_key, new_id) on conflict do nothing;
        if not found then
            if not exists (select from {schema}.idempotency i where i.key = idempotency_key) then
                perform {unwritten};
            end if;
            return null;
        end if;
        texts := coalesce(texts::jsonb, '{{}}') || jsonb_build_object('partbox-idempotency-key', idempotency_key);
    end if;
    -- Without xid and id: their defaults draw the transaction id first.
    insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                                 payload, headers, available_at)
    values (part, new_id, event_type, aggregate_type,
            keyed, tenant_id, coalesce(payload, 'null'), texts,
            coalesce(available_at, clock_timestamp() + make_interval(secs => extract(epoch from deliver_after)::float8)));
    if not found then
        perform {unwritten};
    end if;
    -- Inline, for a function with a search_path of its own costs more than the INSERT. Once the id is drawn: see rules/bell.
    if has_sequence_privilege(bell, 'SELECT') then
        if pg_sequence_last_value(bell) - (extract(epoch from clock_timestamp()) * 1000)::bigint between 1 and 3000 then
            if {queue_has_room} then
                perform pg_notify({channel}, part::text);
            end if;
        end if;
    end if;
    return new_id;
end
$$;
