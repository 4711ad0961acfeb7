-- purpose: Return a UUIDv7: 48 bits of milliseconds, the version, and the random rest of a UUID of version 4.

create or replace function {schema}.new_event_id() returns uuid
language sql volatile parallel safe as $$
    select (lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
            || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid
$$;
