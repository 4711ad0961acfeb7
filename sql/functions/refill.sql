-- purpose: Insert rows for the next records of spilled keys of a partition. Return a row for each key.
--
-- The fence is (owner, epoch), as for a save. If `me` is not the owner, a single row of nulls is returned, and nothing is
-- written.
--
--   consumed_id  records above it are not read: the owner's saves may not have passed them for good
--   keys         a JSON array of {{"at", "ai", "n", "end"}}: a key, how many of its records are wanted, and whether its spill may
--                end if there are fewer
--   types        the event types that the subscription takes; null for all
--   most_read    how many records of the partition are read. One scan serves all the keys.
--
-- A record that the saved cursor has not consumed is passed over: it is late, and its owner parks late records whatever their
-- id. A record that has a row already keeps it. `from_id` moves behind the records that were found, or behind all that were
-- read, so the next refill goes on there. It is null in the result if the spill has ended. `is_end` is true if the
-- records up to `consumed_id` were all read and fewer than `n` were found.
create or replace function {schema}.refill(
    subscription text, me uuid, partition smallint, epoch bigint, consumed_id bigint, keys json, types text[], most_read integer
) returns table (aggregate_type text, aggregate_id text, from_id bigint, is_end boolean, record_ids bigint[])
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    seen pg_snapshot;
    low  bigint;
    high bigint;
    many bigint;
begin
    -- A crash of the server may undo a refill, as it may undo a save. The next owner does both again.
    perform set_config('synchronous_commit', 'off', true);
    select p.snapshot, least(p.last_id, refill.consumed_id) into seen, high
      from {schema}.partition p
     where p.subscription = refill.subscription and p.partition = refill.partition and p.owner = refill.me
           and p.epoch = refill.epoch
       for no key update;
    if not found then
        return query select null::text, null::text, null::bigint, null::boolean, null::bigint[];
        return;
    end if;

    select min(w.from_id) into low
      from {schema}.spill w
      join json_to_recordset(refill.keys) as j ("at" text, ai text) on w.aggregate_type = j."at" and w.aggregate_id = j.ai
     where w.subscription = refill.subscription and w.partition = refill.partition;
    select count(*), case when count(*) < refill.most_read then high else max(r.id) end into many, high
      from (select r.id from {schema}.record r
             where r.partition = refill.partition and r.id >= low and r.id <= high
             order by r.id limit refill.most_read) r;

    return query
    with wanted as materialized (
        select w.key_hash, w.aggregate_type, w.aggregate_id, w.from_id, j.n, j."end"
          from json_to_recordset(refill.keys) as j ("at" text, ai text, n bigint, "end" boolean)
          join {schema}.spill w on w.subscription = refill.subscription and w.partition = refill.partition
                                   and w.aggregate_type = j."at" and w.aggregate_id = j.ai
    ), found as materialized (
        select w.key_hash, r.id, r.event_type, w.n,
               row_number() over (partition by w.key_hash order by r.id) as rank
          from {schema}.record r
          join wanted w on w.aggregate_type = r.aggregate_type and w.aggregate_id = r.aggregate_id and r.id >= w.from_id
         where r.partition = refill.partition and r.id >= low and r.id <= high
               and pg_visible_in_snapshot(r.xid, seen) and (refill.types is null or r.event_type = any (refill.types))
    ), parked as (
        insert into {schema}.parked as k (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state,
                                          blocks)
        select refill.subscription, f.id, refill.partition, w.aggregate_type, w.aggregate_id, f.event_type, 'held', true
          from found f
          join wanted w on w.key_hash = f.key_hash
         where f.rank <= f.n
         order by f.id
            on conflict (subscription, record_id) do nothing
        returning k.record_id
    ), sums as materialized (
        select w.key_hash, w.aggregate_type, w.aggregate_id, many < refill.most_read and count(f.id) < w.n as is_end, w."end",
               case when count(f.id) < w.n then greatest(high + 1, w.from_id) else max(f.id) + 1 end as onward,
               coalesce(array_agg(f.id order by f.id) filter (where f.id in (select parked.record_id from parked)), '{{}}') as ids
          from wanted w
          left join found f on f.key_hash = w.key_hash and f.rank <= f.n
         group by w.key_hash, w.aggregate_type, w.aggregate_id, w."end", w.n, w.from_id
    ), ended as (
        delete from {schema}.spill w
         using sums s
         where w.subscription = refill.subscription and w.partition = refill.partition and w.key_hash = s.key_hash
               and s.is_end and s."end"
        returning w.key_hash
    ), moved as (
        update {schema}.spill w
           set from_id = s.onward
          from sums s
         where w.subscription = refill.subscription and w.partition = refill.partition and w.key_hash = s.key_hash
               and not (s.is_end and s."end")
        returning w.key_hash
    )
    select s.aggregate_type, s.aggregate_id, case when not (s.is_end and s."end") then s.onward end, s.is_end, s.ids
      from sums s
     where (select count(*) from ended) + (select count(*) from moved) >= 0;
end
$$;
