-- name: segments
-- The query returns each segment of the log in the order of ids, the default segment last: the ids that it takes, its bytes, and its
-- oldest and newest record with their ages in seconds. Both records are found by the index on ids, because the query repeats the
-- condition of that index.
select s.name, s.lower, s.upper, coalesce(pg_total_relation_size(s.segment), 0),
       oldest.id, (extract(epoch from clock_timestamp()) - extract(epoch from oldest.created_at))::float8,
       newest.id, (extract(epoch from clock_timestamp()) - extract(epoch from newest.created_at))::float8
  from {schema}.segment_ranges() s
  left join lateral (
       (select r.id, r.created_at from {schema}.record r
         where r.partition >= 0 and r.id >= s.lower and r.id < s.upper order by r.id limit 1)
       union all
       (select n.id, n.created_at from {schema}.record_default n
         where s.lower is null and n.partition >= 0 order by n.id limit 1)) oldest on true
  left join lateral (
       (select r.id, r.created_at from {schema}.record r
         where r.partition >= 0 and r.id >= s.lower and r.id < s.upper order by r.id desc limit 1)
       union all
       (select n.id, n.created_at from {schema}.record_default n
         where s.lower is null and n.partition >= 0 order by n.id desc limit 1)) newest on true
 order by s.lower nulls last

-- name: segments_drawn
-- The query returns the highest id that was drawn.
select {schema}.drawn()

-- name: segments_pace
-- The query returns how many ids were drawn in how many seconds, up to now: the last ten thousand, the last hundred thousand, and so on.
select newest.id - r.id, (extract(epoch from clock_timestamp()) - extract(epoch from r.created_at))::float8
  from (select {schema}.drawn() as id offset 0) newest
 cross join unnest(array[10000, 100000, 1000000, 10000000, 100000000]) as back
 cross join lateral (select r.id, r.created_at from {schema}.record r
                      where r.partition >= 0 and r.id > newest.id - back order by r.id limit 1) r

-- name: segments_proof
-- The query returns the ids that a constraint keeps out of the default segment, and whether that is proven. It returns no row if there is
-- no such constraint.
select lower, upper, valid from {schema}.segment_proof()

-- name: segments_failed
-- The statement notes for `partbox doctor` why segments cannot be changed. A null problem means that they can. Nothing is written if the
-- note does not change.
insert into {schema}.meta as m (key, value)
select 'segments_failed', %(problem)s::text
 where exists (select from {schema}.meta known where known.key = 'segments_failed') or %(problem)s::text is not null
    on conflict (key) do update set value = excluded.value where m.value is distinct from excluded.value

-- name: event_triggers
-- The query returns the event triggers of the database that run when segments are made or dropped, by name: the name, the event and the
-- function.
select t.evtname::text, t.evtevent::text, format('%%I.%%I()', n.nspname, p.proname)
  from pg_event_trigger t
  join pg_proc p on p.oid = t.evtfoid
  join pg_namespace n on n.oid = p.pronamespace
 where t.evtenabled in ('O', 'A') and t.evtevent in ('ddl_command_start', 'ddl_command_end', 'sql_drop')
       and (t.evttags is null or t.evttags && array['CREATE TABLE', 'ALTER TABLE', 'DROP TABLE'])
 order by t.evtname

-- name: segment_holds
-- The query returns the reasons why the records from `lower` to below `upper` cannot be deleted; see the function.
-- An aggregate that holds them is named.
select h.reason, h.subscription, h.partition, h.id, h.count, w.aggregate_type, w.aggregate_id
  from {schema}.segment_holds(%(lower)s::bigint, %(upper)s::bigint,
                              case when %(retain)s::float8 is not null then
                                  clock_timestamp() - least(%(retain)s::float8, 36500 * 86400.0) * interval '1 second' end) h
  left join lateral (
       select w.aggregate_type, w.aggregate_id from {schema}.spill w
        where h.reason = 'spilled' and w.subscription = h.subscription and w.partition = h.partition and w.from_id = h.id
        limit 1) w on true

-- name: segment_add
-- The query makes a segment; see the function, as for the queries below. It returns null, or the obstacle.
select {schema}.segment_add(%(lower)s::bigint, %(upper)s::bigint)

-- name: segment_exclude
-- The query keeps a range of ids out of the default segment, or no ids if the range is null. It returns null, or the obstacle.
select {schema}.segment_exclude(%(lower)s::bigint, %(upper)s::bigint)

-- name: segment_prove
-- The query proves that the default segment holds none of these ids.
select {schema}.segment_prove()

-- name: segment_empty
-- The query empties a segment. It returns the obstacle (null if there is none) and the bytes that were freed.
select problem, freed from {schema}.segment_empty(%(lower)s::bigint, %(retain)s::float8)

-- name: segment_detach
-- The query takes a segment out of the log. It returns null, or the obstacle.
select {schema}.segment_detach(%(lower)s::bigint)

-- name: segment_drop
-- The query drops the segments that were taken out of the log. It returns their number.
select {schema}.segment_drop()
