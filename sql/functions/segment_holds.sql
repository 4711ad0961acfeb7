-- purpose: Return all reasons to keep the records of a segment, one row each. Without a row the segment can be emptied whole.
--
-- No other function decides this. `segment_empty` asks it for the decision, and reports ask it why a segment exists. The
-- reasons come in this order:
--
--   open      the last id of the segment is not drawn yet
--   young     the newest records were created at `before` or later; a `before` of null ignores their age
--   archive   an archive is kept, and the newest record is not in it yet
--   cursor    the subscription has not passed the newest record: `partition` is the partition furthest behind, and `id` is its
--             least(floor_id, last_id). A partition without a cursor has passed nothing.
--   spilled   records of `count` aggregates that are held up wait in the log without rows; `id` is the first of them
--   parked    `count` records of the segment are parked and neither dead nor discarded, or still need a call of their dead-letter
--             hook; `id` is the first of them
--   dead      the segment has more dead records than can be set aside: `count`
--   empty     the segment has no records except dead ones, which are kept
--
-- Times rise with ids, with few exceptions, so the thousand records with the highest ids count as the newest. As in
-- `purge_records`, nothing is parked behind a cursor, and cursors go back, and subscriptions begin, only under the lock of
-- purges.
create or replace function {schema}.segment_holds(lower bigint, upper bigint, before timestamptz)
returns table (reason text, subscription text, partition smallint, id bigint, count bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    most_dead constant integer := 1000;
    most_size constant bigint := 4194304;
    newest bigint;
    recent timestamptz;
    kept   bigint;
    names  text[];
begin
    if {schema}.drawn() < segment_holds.upper - 1 then
        return query select 'open', null::text, null::smallint, null::bigint, null::bigint;
    end if;

    select max(r.id), max(r.created_at) into newest, recent
      from (select r.id, r.created_at from {schema}.record r
             where r.partition >= 0 and r.id >= segment_holds.lower and r.id < segment_holds.upper
             order by r.id desc limit 1000) r;
    if recent >= segment_holds.before then
        return query select 'young', null::text, null::smallint, newest, null::bigint;
    end if;

    select m.value::bigint into kept from {schema}.meta m where m.key = 'archived_id';
    if newest > kept then
        return query select 'archive', null::text, null::smallint, newest, null::bigint;
    end if;

    return query
    select 'cursor', s.name, c.partition, c.id, null::bigint
      from {schema}.subscription s
     cross join lateral (
           select count(*), min(least(p.floor_id, p.last_id)) as id
             from {schema}.partition p where p.subscription = s.name) every
     cross join lateral (
           select number::smallint as partition, coalesce(least(p.floor_id, p.last_id), 0) as id
             from generate_series(0, 255) as number
             left join {schema}.partition p on p.subscription = s.name and p.partition = number
            where every.count < 256 or every.id < newest
            order by 2, 1 limit 1) c
     where c.id < newest
     order by s.name;

    return query
    select 'spilled', w.subscription, (array_agg(w.partition order by w.from_id))[1], min(w.from_id), count(*)
      from {schema}.spill w
      join {schema}.subscription s on s.name = w.subscription
     where w.from_id <= newest
     group by w.subscription
     order by w.subscription;

    select array_agg(k.subscription) into names
      from ({first_parked}) k
      join {schema}.subscription s on s.name = k.subscription
     where k.record_id < segment_holds.upper;
    return query
    select 'parked', k.subscription, (array_agg(k.partition order by k.record_id))[1], min(k.record_id), count(*)
      from {schema}.parked k
     where k.subscription = any (names) and k.record_id >= segment_holds.lower and k.record_id < segment_holds.upper
           and (k.state not in ('dead', 'discarded') or k.due_at is not null)
     group by k.subscription;

    return query
    select 'dead', null::text, null::smallint, min(r.id), count(*)
      from {schema}.record r
     where r.id >= segment_holds.lower and r.id < segment_holds.upper
           and (r.partition, r.id) in (select k.partition, k.record_id from {schema}.parked k
                                        where k.subscription = any (names) and k.record_id >= segment_holds.lower
                                              and k.record_id < segment_holds.upper and k.state <> 'discarded')
    having count(*) > most_dead
           or sum(coalesce(pg_column_size(r.payload), 0)::bigint + coalesce(pg_column_size(r.payload_bytes), 0)
                  + coalesce(pg_column_size(r.headers), 0)) > most_size;

    if not exists (select from {schema}.record r
                    where r.partition >= 0 and r.id >= segment_holds.lower and r.id < segment_holds.upper
                          and not exists (select from {schema}.parked k
                                           where k.subscription = any (names) and k.record_id = r.id
                                                 and k.state <> 'discarded')) then
        return query select 'empty', null::text, null::smallint, null::bigint, null::bigint;
    end if;
end
$$;
