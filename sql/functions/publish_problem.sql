-- purpose: Return why an event cannot be published from SQL, with the remedy; return null if it can.

create or replace function {schema}.publish_problem(
    event_type text, payload json, aggregate_type text, aggregate_id text, tenant_id text, headers json,
    available_at timestamptz, deliver_after interval, idempotency_key text
) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    -- The limit is a setting of the session, because the settings of Python do not apply to events that SQL publishes.
    said        text := coalesce(nullif(trim(current_setting('partbox.max_payload', true)), ''), '1048576');
    max_payload bigint := case when said ~ '^[0-9]{{1,18}}$' then said::bigint end;
    name text;
    kind text;
    size bigint;
begin
    if max_payload is null then
        return format('partbox.max_payload is %L: set it to a number of bytes, such as 1048576', left(said, 100));
    elsif coalesce(event_type, '') = '' then
        return 'event_type is empty: name it';
    elsif coalesce(aggregate_type, '') = '' then
        return 'aggregate_type is empty: name it';
    elsif aggregate_id is null and aggregate_type <> '__GLOBAL__' then
        return format('aggregate_id is null, and aggregate_type is %L: give the id; for an event without order leave '
                      'aggregate_id out', left(aggregate_type, 100));
    elsif length(event_type) > 255 then
        return format('event_type %L has %s characters, above 255: shorten it',
                      left(event_type, 100) || '...', length(event_type));
    elsif length(aggregate_type) > 255 then
        return format('aggregate_type %L has %s characters, above 255: shorten it',
                      left(aggregate_type, 100) || '...', length(aggregate_type));
    elsif octet_length(aggregate_id) > 8192 then
        return format('aggregate_id %L has %s bytes, above 8192: hash what is longer',
                      left(aggregate_id, 100) || '...', octet_length(aggregate_id));
    elsif octet_length(tenant_id) > 8192 then
        return format('tenant_id %L has %s bytes, above 8192: hash what is longer',
                      left(tenant_id, 100) || '...', octet_length(tenant_id));
    elsif octet_length(payload::text) > max_payload then
        return format('the payload of %L has %s bytes, above max_payload = %s: store it elsewhere and publish a '
                      'reference, or raise partbox.max_payload', event_type, octet_length(payload::text), max_payload);
    elsif {schema}.unfit_json(payload) is not null then
        return 'the payload ' || {schema}.unfit_json(payload);
    elsif available_at is not null and deliver_after is not null then
        return 'available_at and deliver_after are both given: keep one of them';
    elsif not isfinite(available_at) then
        return format('available_at %s is no moment: give a time', available_at);
    -- now() is the beginning of the transaction, so a caller may pass now() itself even in a long transaction.
    elsif available_at < now() - interval '1 minute' then
        return format('available_at %s is past, and the event occurs now: leave it out to have the event delivered at once',
                      available_at);
    elsif not extract(epoch from deliver_after) between 0.000001 and 36500 * 86400.0 then
        return format('deliver_after must be above 0 and at most 36500 days, not %s', deliver_after);
    elsif not length(idempotency_key) between 1 and 255 then
        return format('idempotency_key must have 1 to 255 characters, not %s', length(idempotency_key));
    elsif json_typeof(headers) <> 'object' then
        return format('headers must be a JSON object of texts, not %s', json_typeof(headers));
    elsif {schema}.unfit_json(headers) is not null then
        return 'a header ' || {schema}.unfit_json(headers);
    elsif headers is null then
        return null;
    end if;
    for name, kind in select key, json_typeof(value) from json_each(headers) loop
        if kind <> 'string' then
            return format('header %L must be a text, not a JSON %s: convert it', name, kind);
        elsif lower(name) like 'partbox-%' then
            return format('header %L begins with partbox-, which partbox keeps for itself: rename it', name);
        end if;
    end loop;
    select sum(octet_length(key) + octet_length(value)) into size from json_each_text(headers);
    if size > 65536 then
        return format('the headers have %s bytes together, above 65536: move them into the payload', size);
    end if;
    return null;
end
$$;
