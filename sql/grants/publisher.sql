-- purpose: Grant a role the privileges to publish from Python and from SQL, and no others.
--
-- INSERT is granted on named columns. The role cannot write `xid` and `id`, because fences depend on them, nor `created_at`,
-- because purges use it. The role can read no column of `record`, so it cannot use RETURNING. USAGE on the sequence serves
-- the default of `id`: the role can draw ids but cannot set the sequence back.

grant usage on schema {schema} to {role};
grant insert (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes,
              content_type, headers, available_at, occurred_at) on {schema}.record to {role};
grant usage on sequence {schema}.record_id_seq to {role};
grant select on sequence {schema}.bell to {role};
grant insert (key, event_id), select (key) on {schema}.idempotency to {role};
grant execute on function
    {schema}.publish(text, json, text, text, text, anycompatible, timestamptz, interval, text),
    {schema}.publish(text, jsonb, text, text, text, anycompatible, timestamptz, interval, text),
    {schema}.publish(text, text, text, text, text, anycompatible, timestamptz, interval, text),
    {schema}.publish_problem(text, json, text, text, text, json, timestamptz, interval, text),
    {schema}.unfit_json(json), {schema}.new_event_id(), {schema}.partition_of(text), {schema}.ring(integer),
    {schema}.tell(text), {schema}.refuse(text), {schema}.cancel(uuid, text, text, text) to {role};
