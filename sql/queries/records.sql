-- name: fence
-- The query returns one row with a fence (U, G). `drawn` is G, the highest id that was drawn. `age` gives U, the last transaction id that
-- the server has assigned. Its expression depends on `g`, so it is evaluated after G is read. `xmax` completes `age` to 64 bits. `ended`
-- says whether a transaction that the last snapshot listed has ended. `life` is the server's incarnation. `ahead` is the number of
-- milliseconds by which the bell's flag lies ahead.
-- If U were read first, a transaction could begin after that and draw an id before G is read. Its xid would be above U,
-- and its id would not be above G.
-- The query calls pg_sequence_last_value and never selects from the sequence. A SELECT can return a value that is up to 31 ahead of the
-- ids that are drawn, and returns 1 before the first id.
select g as drawn,
       age(case when g >= 0 then '3'::xid end) as age,
       pg_snapshot_xmax(pg_current_snapshot())::text as xmax,
       %(listed)s::text <> '{{}}'
       and exists (select from unnest(%(listed)s::text[]::xid8[]) as listed (xid)
                    where pg_visible_in_snapshot(listed.xid, (select pg_current_snapshot()))) as ended,
       pg_sequence_last_value(%(life)s::oid::regclass) as life,
       {flag_ahead} as ahead,
       {log_named} as log
  from (select {drawn} as g offset 0) as drawn

-- name: still
-- The query returns the highest id that was drawn. It is null before the first id, and for a role that may not read the sequence.
-- A worker that no bell wakes sends the query 25 times a second. Behind a pooler the server plans it anew each time, so the text is as
-- short as it can be. It proves nothing else, because it moves nothing: a tick checks everything soon.
select pg_sequence_last_value({sequence})

-- name: wanted
-- Other queries contain this condition. It is true if the subscription wants the type of a record `r`. Null `types` are all types.
(%(types)s::text[] is null or r.event_type = any(%(types)s::text[]))

-- name: light
-- Other queries contain this list of columns of a record `r`. It leaves out values that are large, or compressed and so perhaps large.
-- `payloads` returns those, bounded by bytes. The sizes are known without reading the values. A record with a large name has no event
-- type in this list. Every record has one in the log. A record whose type is not one of `types`, if that is not null, is not delivered.
-- Its payload is `null` and it has no headers.
r.partition, r.id, r.event_id,
       case when greatest(octet_length(r.event_type), octet_length(r.aggregate_type), octet_length(r.aggregate_id),
                          octet_length(r.tenant_id), octet_length(r.content_type)) <= 2000 then r.event_type end,
       case when octet_length(r.aggregate_type) <= 2000 then r.aggregate_type end,
       case when octet_length(r.aggregate_id) <= 2000 then r.aggregate_id end,
       case when octet_length(r.tenant_id) <= 2000 then r.tenant_id end,
       case when not {wanted} then 'null'::json
            when pg_column_size(r.payload) <= 2000 and pg_column_compression(r.payload) is null
                 and (r.headers is null
                      or (pg_column_size(r.headers) <= 2000 and pg_column_compression(r.headers) is null))
            then r.payload end,
       case when {wanted} and octet_length(r.payload_bytes) <= 2000
                 and (r.headers is null
                      or (pg_column_size(r.headers) <= 2000 and pg_column_compression(r.headers) is null))
            then r.payload_bytes end,
       case when octet_length(r.content_type) <= 2000 then r.content_type end,
       -- A record that is never available has its headers in any case, because they say whether an import has written it.
       case when r.headers is not null and {wanted}
                 and (pg_column_size(r.headers) <= 2000 and pg_column_compression(r.headers) is null
                      or r.available_at = '294276-12-31 23:59:59.999999Z')
            then r.headers end

-- name: times
-- Other queries contain these columns, which are the times of a record `r`. If a delayed record is due, and is cancelled or perhaps about
-- to be, its `available_at` becomes a moment in the future. So the record is parked, and may run only as parked records may. A
-- transaction that cancels locks the record and then reads the clock. This query reads the clock first, at the beginning of the
-- statement.
case when r.available_at is not null and r.available_at <= now() and {schema}.cancelling(r.partition, r.id)
            then now() + interval '1 millisecond' else r.available_at end, r.occurred_at, r.created_at

-- name: floor
-- Other queries contain this query. It returns the floor of the shared page. Mostly the page lists no transaction, and a scan of an empty
-- list costs 2 us.
select case when %(listed)s::text = '{{}}' then %(settled)s::bigint else (
           select least(%(settled)s::bigint, min(listed.bound))
             from unnest(%(listed)s::text[]::xid8[], %(bounds)s::bigint[]) as listed (xid, bound)
            where pg_visible_in_snapshot(listed.xid, (select pg_current_snapshot()))) end as floor_id

-- name: clock
-- Other queries contain this expression. It is the server's clock in microseconds since 2000. Floating point is faster, and exact until
-- 2100.
(date_part('epoch', now() - timestamptz '2000-01-01 00:00Z') * 1000000)::bigint::text

-- name: poll
-- The query returns one page: for each partition the new records, with ids above its `last_id`, and the late records, which have lower
-- ids but were not visible before. The last row is no record. It has the snapshot N, the floors, the server's incarnation, the server's
-- clock, the number of the log's definition (`log_planned`), and the highest id drawn by then. No record that N sees has a higher id. If
-- this row is missing, the page was cut.
-- The records and N come from one plain statement in autocommit. The module partbox/protocol/horizon.py explains each bound.
-- In a VOLATILE function, each query has its own snapshot, so what commits between the records and N would be lost or
-- come twice. The transaction has no xid, because its own xid would count as visible in N. Records are ordered by id: a
-- transaction that waited for another's row lock may have the lower xid and draw the higher ids.
-- A partition in lockstep is read from the shared page. Another partition is read from a page of its own, which has a number (`base`).
-- `above` is a number in the text of the statement, for the plan alone. The plan has no segment below this number, so segments that are
-- finished cost nothing.
-- The branch before the last row is the sweep; see partbox/protocol/sweep.py. It returns new records of partitions with a backlog, in the
-- order of ids. `swept` has a bit for each partition. `swept_ids` has the last id of each partition from 0 to 255. `swept_most` is 0 if
-- there is no sweep.
with horizon as materialized (
    {floor}
), own as materialized (
    select page.no, page.snapshot, least(page.settled, (
               select min(listed.bound)
                 from unnest(%(own_of)s::bigint[], %(own_listed)s::text[]::xid8[], %(own_bounds)s::bigint[])
                      as listed (no, xid, bound)
                where listed.no = page.no and pg_visible_in_snapshot(listed.xid, (select pg_current_snapshot())))) as floor_id
      from unnest(%(own_snapshots)s::text[]::pg_snapshot[], %(own_settled)s::bigint[])
           with ordinality as page (snapshot, settled, no)
)
select {light}, {times}
  from unnest(%(partitions)s::smallint[], %(last_ids)s::bigint[], %(rooms)s::bigint[],
              %(bases)s::bigint[], %(untils)s::text[]::pg_snapshot[], %(afters)s::bigint[])
       as c (partition, last_id, room, base, until, after)
  left join own on own.no = c.base
 cross join lateral (
    select greatest(least(coalesce(own.floor_id, (select floor_id from horizon)), c.last_id), c.after) as id
 ) as start
 cross join lateral (
    (select r.*
       from {schema}.record r
      where start.id < c.last_id
            and r.partition = c.partition and r.id > %(above)s::bigint and r.id <= %(hi)s::bigint
            and r.id > start.id and r.id <= least(c.last_id, start.id + %(stretch)s::bigint)
            and not pg_visible_in_snapshot(r.xid, coalesce(own.snapshot, %(snapshot)s::pg_snapshot))
            and (c.until is null or pg_visible_in_snapshot(r.xid, c.until))
      order by r.id limit %(cap)s::bigint + 1)
    union all
    (select r.*
       from {schema}.record r
      where c.room > 0
            and r.partition = c.partition and r.id > %(above)s::bigint and r.id <= %(hi)s::bigint and r.id > c.last_id
      order by r.id limit c.room)
 ) as r
union all
(select {light}, {times}
  from {schema}.record r
 where r.id > %(above)s::bigint and r.id > %(swept_from)s::bigint and r.id <= %(swept_to)s::bigint
       and r.partition >= 0 and get_bit(%(swept)s::varbit, r.partition) = 1
       and r.id > (%(swept_ids)s::bigint[])[r.partition + 1]
 order by r.id limit %(swept_most)s::bigint)
union all
select null::smallint, (select floor_id from horizon), null::uuid,
       coalesce((select json_object_agg(no, floor_id) from own)::text, '{{}}'),
       pg_sequence_last_value(%(life)s::oid::regclass)::text, pg_current_snapshot()::text, {clock},
       {schema}.log_planned()::text::json,
       null::bytea, {drawn}::text, null::json,
       null::timestamptz, null::timestamptz, null::timestamptz

-- name: quick
-- The query is the quick poll. It returns everything that has become visible since the shared page, for partitions that are caught up, by
-- one scan of a range of ids. The last row is like that of `poll`. It also has the age of xid 3 and the milliseconds by which the bell's
-- flag lies ahead.
-- `drawn` is read after the snapshot N is taken, so nothing that N sees lies above it. The next transaction id depends on `g` and is read
-- after `drawn`, so the two are a fence.
-- `above` and `end` are numbers in the text of the statement, for the plan alone. The plan has only the segments between the two, so
-- finished segments and future segments cost nothing.
-- Every record has a partition of at least 0. The query says so because that is the condition of the index on ids: only a query with this
-- condition can use that index.
-- `partitions` has a bit for each partition. An array would be searched for every record, which costs more than all the rest.
with drawn as materialized (
    select g as id, age(case when g >= 0 then '3'::xid end) as age, {flag_ahead} as ahead
      from (select {drawn} as g offset 0) as read
), horizon as materialized (
    {floor}
)
(select {light}, {times}
  from {schema}.record r
 where r.id > %(above)s::bigint and r.id < %(end)s::bigint
       and r.id > (select floor_id from horizon) and r.id <= (select id from drawn)
       and r.partition >= 0 and get_bit(%(partitions)s::varbit, r.partition) = 1
       and not pg_visible_in_snapshot(r.xid, %(snapshot)s::pg_snapshot)
 order by r.id limit %(most)s::bigint + 1)
union all
select null::smallint, horizon.floor_id, null::uuid, drawn.age::text,
       pg_sequence_last_value(%(life)s::oid::regclass)::text, pg_current_snapshot()::text, {clock},
       {schema}.log_planned()::text::json, null::bytea, drawn.id::text, drawn.ahead::text::json,
       null::timestamptz, null::timestamptz, null::timestamptz
  from drawn, horizon

-- name: bodies
-- The query returns the records of parked rows in the order of ids, without large values, as in a page. A record that is gone is missing.
-- The last column says whether a delayed record is cancelled or may be, because a transaction has locked it at some time.
select {light}, r.available_at, r.occurred_at, r.created_at,
       r.available_at is not null and (r.xmax <> 0 or exists (select from {schema}.cancellation c where c.record_id = r.id))
  from unnest(%(partitions)s::smallint[], %(ids)s::bigint[]) as wanted (partition, id)
  join {schema}.record r on r.partition = wanted.partition and r.id = wanted.id
 order by r.id

-- name: payloads
-- The query returns these records whole, one after the other, until they have `bytes` bytes together. So the first record is always
-- returned, and the last one may exceed the limit. A record that is gone has a null id. Only compressed JSON must be read to know its
-- size.
with recursive taken as (
    select 0 as position, 0::bigint as bytes, null::smallint as partition, null::bigint as id, null::uuid as event_id,
           null::text as event_type, null::text as aggregate_type, null::text as aggregate_id, null::text as tenant_id,
           null::json as payload, null::bytea as payload_bytes, null::text as content_type, null::json as headers,
           null::timestamptz as available_at, null::timestamptz as occurred_at, null::timestamptz as created_at
    union all
    select taken.position + 1,
           taken.bytes
           + coalesce(octet_length(r.event_type), 0) + coalesce(octet_length(r.aggregate_type), 0)
           + coalesce(octet_length(r.aggregate_id), 0) + coalesce(octet_length(r.tenant_id), 0)
           + coalesce(octet_length(r.content_type), 0) + coalesce(octet_length(r.payload_bytes), 0)
           + coalesce(case when pg_column_compression(r.payload) is null then pg_column_size(r.payload)
                           else octet_length(r.payload::text) end, 0)
           + coalesce(case when pg_column_compression(r.headers) is null then pg_column_size(r.headers)
                           else octet_length(r.headers::text) end, 0),
           r.partition, r.id, r.event_id, r.event_type, r.aggregate_type, r.aggregate_id, r.tenant_id, r.payload,
           r.payload_bytes, r.content_type, r.headers, r.available_at, r.occurred_at, r.created_at
      from taken
      left join {schema}.record r on r.partition = (%(partitions)s::smallint[])[taken.position + 1]
                                     and r.id = (%(ids)s::bigint[])[taken.position + 1]
     where taken.position < cardinality(%(ids)s::bigint[]) and taken.bytes < %(bytes)s::bigint
)
select partition, id, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes,
       content_type, headers, available_at, occurred_at, created_at
  from taken
 where position > 0
 order by position
