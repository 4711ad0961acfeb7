-- name: publish
-- one event; xid and id come from their defaults, so that the transaction id is always drawn first
insert into {schema}.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
        payload, payload_bytes, content_type, headers, available_at, occurred_at)
values (%(partition)s::smallint, %(event_id)s::uuid, %(event_type)s::text, %(aggregate_type)s::text,
        %(aggregate_id)s::text, %(tenant_id)s::text, %(payload)s::json, %(payload_bytes)s::bytea,
        %(content_type)s::text, %(headers)s::json,
        coalesce(%(available_at)s::timestamptz, clock_timestamp() + %(deliver_after)s::interval),
        coalesce(%(occurred_at)s::timestamptz, clock_timestamp()))

-- name: publish_copy
-- many events that leave every time to the database
copy {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                      payload, payload_bytes, content_type, headers) from stdin

-- name: publish_copy_timed
-- many events, some with times of their own
copy {schema}.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
                      payload, payload_bytes, content_type, headers, available_at, occurred_at) from stdin

-- name: publish_clock
-- the database's clock, for events that are copied: microseconds since 1970
select (extract(epoch from clock_timestamp()) * 1000000)::bigint
