-- purpose: Publish an event from SQL, with the checks of Python. Return the event's id, or null if the key was used before.
--
-- `publish_jsonb.sql` and `publish_text.sql` create the same function for other types of the payload. PostgreSQL takes a
-- literal without a type as text.
--
-- PostgreSQL infers the type of `headers`. One more function for each type of `headers` would not work: if two functions
-- differ only in an argument with a default, PostgreSQL cannot choose between them in a call without that argument.
--
-- The function refuses an `aggregate_id` that is null beside an `aggregate_type`. Therefore an omitted `aggregate_id` has a
-- default of its own.

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
    bell    oid := to_regclass({bell});
    problem text := {schema}.publish_problem(
        event_type, payload, aggregate_type, aggregate_id, tenant_id, texts, available_at, deliver_after, idempotency_key);
begin
    if problem is not null then
        raise exception 'partbox: %', problem using errcode = 'invalid_parameter_value';
    end if;
    if idempotency_key is not null then
        -- This statement waits for a transaction that has inserted the same key, and inserts the key only if that one is
        -- rolled back.
        insert into {schema}.idempotency (key, event_id) values (idempotency_key, new_id) on conflict do nothing;
        if not found then
            if not exists (select from {schema}.idempotency i where i.key = idempotency_key) then
                perform {unwritten};
            end if;
            return null;
        end if;
        texts := coalesce(texts::jsonb, '{{}}') || jsonb_build_object('partbox-idempotency-key', idempotency_key);
    end if;
    -- The columns xid and id are left to their defaults, which draw the transaction id before the record id.
    --
    -- A delay is elapsed time. An interval of days, added directly, would use days of the session's time zone, and such a day
    -- may have 23 hours. Therefore the delay is converted to seconds.
    insert into {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                                 payload, headers, available_at)
    values (part, new_id, event_type, aggregate_type,
            keyed, tenant_id, coalesce(payload, 'null'), texts,
            coalesce(available_at, clock_timestamp() + make_interval(secs => extract(epoch from deliver_after)::float8)));
    if not found then
        perform {unwritten};
    end if;
    -- The following statements do the work of `ring`. They are inline because a call of a function with its own search_path
    -- costs more than the INSERT. The bell is read only after the id is drawn: see partbox/protocol/bell.py.
    if has_sequence_privilege(bell, 'SELECT') then
        if pg_sequence_last_value(bell) - (extract(epoch from clock_timestamp()) * 1000)::bigint between 1 and 3000 then
            if {queue_has_room} then
                perform pg_notify({channel}, part::text),
                        pg_notify({type_channels} || (hashtext(event_type) & 15), part::text);
            end if;
        end if;
    end if;
    return new_id;
end
$$;
