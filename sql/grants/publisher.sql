-- purpose: what it takes to publish, from Python and from SQL, and nothing else
--
-- Columns by name: never `xid` and `id`, which fences rest on, nor `created_at`, which purges go by; and no column can
-- be read, so no `returning`. USAGE on the sequence is for the default of `id`: it draws ids, it cannot set them back.

grant usage on schema {schema} to {role};
grant insert (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes,
              content_type, headers, available_at, occurred_at) on {schema}.record to {role};
grant usage on sequence {schema}.record_id_seq to {role};
grant insert (key, event_id), select (key) on {schema}.idempotency to {role};
grant execute on function
    {schema}.publish(text, json, text, text, text, anycompatible, timestamptz, interval, text),
    {schema}.publish(text, jsonb, text, text, text, anycompatible, timestamptz, interval, text),
    {schema}.publish(text, text, text, text, text, anycompatible, timestamptz, interval, text),
    {schema}.publish_problem(text, json, text, text, text, json, timestamptz, interval, text),
    {schema}.unfit_json(json), {schema}.new_event_id(), {schema}.partition_of(text), {schema}.ring(integer),
    {schema}.tell(text), {schema}.refuse(text), {schema}.cancel(uuid, text, text) to {role};

-- There is no such sequence before PostgreSQL 15. The name of a role is a value here: what it holds may end the text.
select set_config('partbox.granted', {role_name}, true);
do $$
begin
    if to_regclass(quote_ident({schema_name}) || '.bell') is not null then
        execute format('grant select on sequence %I.bell to %I', {schema_name}, current_setting('partbox.granted'));
    end if;
end
$$;
