-- purpose: Cancel a delayed event: no handler runs it if the caller's transaction commits. Return whether this was in time.
--
-- The event is named by `event_id`, or by the idempotency key `key`. True means that no handler of any subscription has run
-- the event or will run it. False means that the time of the event has come, so that handlers have run it or will run it, or
-- that there is no such event, or that the event is not delayed. `who` is stored together with the role of the session, and
-- `reason` beside it in the note of the action.
--
-- A cancellation is in time if the database's clock is before `available_at` once the record is locked. A worker reads the
-- clock before it reads the record, and starts no delayed event that is locked or cancelled (see `cancelling` and
-- `may_start`). A row lock is visible before its transaction commits. So either the worker sees the cancellation, or this
-- function sees that the time has come. After a failover the clock of the new server may differ, so the function also checks
-- the cursors and the parked rows.
--
-- Parked rows of the event become `discarded` at once and are counted as such. A row that is parked later is discarded when
-- it is due. Nobody else writes a row with the state `scheduled`, so the function locks no partition row. Such a lock would
-- stop the saves of the owner until the caller's transaction ends.
create or replace function {schema}.cancel(
    event_id uuid default null, key text default null, who text default null, reason text default null)
returns boolean language plpgsql security definer
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    actor  constant text := concat_ws(' as ', cancel.who, session_user);
    wanted uuid := cancel.event_id;
    moment timestamptz;
    low    bigint;
    high   bigint;
    ids    bigint[];
    due    timestamptz;
    one    bigint;
    made   bigint;
begin
    if (cancel.event_id is null) = (cancel.key is null) then
        raise exception 'partbox: an event is cancelled by its id or by its idempotency key: give one of them'
            using errcode = 'invalid_parameter_value';
    elsif cancel.key is not null then
        select i.event_id, i.created_at into wanted, moment from {schema}.idempotency i where i.key = cancel.key;
    elsif substr(wanted::text, 15, 1) = '7' then
        moment := to_timestamp(('x' || left(translate(wanted::text, '-', ''), 12))::bit(48)::bigint / 1000.0);
    end if;

    -- The key's row or a UUIDv7 tells when the event was published. Search the records of about that time first. If the event
    -- is not among them, search all records that are not delivered yet, because no other record can be cancelled.
    for low, high in
        select {schema}.id_at(moment - near.before), {schema}.id_at(moment + near.after)
          from (values (1, interval '100 ms', interval '1 second'), (2, '2 seconds', '1 minute')) as near (n, before, after)
         where moment is not null
         order by near.n
    loop
        select array_agg(r.id order by r.id), min(coalesce(r.available_at, '-infinity')) into ids, due
          from {schema}.record r
         where r.partition >= 0 and r.id >= low and r.id < high and r.event_id = wanted;
        exit when ids is not null;
    end loop;
    if ids is null and wanted is not null then
        select array_agg(r.id order by r.id), min(coalesce(r.available_at, '-infinity')) into ids, due
          from (select k.record_id as id from {schema}.parked k where k.state = 'scheduled'
                union
                select c.record_id from {schema}.cancellation c
                union
                select n.id
                  from {schema}.partition p
                 cross join lateral (select n.id from {schema}.record n
                                      where n.partition = p.partition and n.id > least(p.floor_id, p.last_id)) n) open
         cross join lateral (select r.* from {schema}.record r where r.partition >= 0 and r.id = open.id offset 0) r
         where r.event_id = wanted;
    end if;
    if ids is null or clock_timestamp() >= due then
        return false;
    end if;

    -- Lock the records before reading the clock. A worker works in the opposite order.
    foreach one in array ids loop
        perform from {schema}.record r where r.partition >= 0 and r.id = one for no key update;
        if not found then
            return false;
        end if;
    end loop;
    if clock_timestamp() >= due or exists (
        select from {schema}.record r
          join {schema}.partition p on p.partition = r.partition
          join {schema}.subscription s on s.name = p.subscription
          left join {schema}.parked k on k.subscription = s.name and k.record_id = r.id
         where r.partition >= 0 and r.id = any (ids)
               and case when k.record_id is not null then k.state not in ('scheduled', 'discarded')
                        else s.created_at <= r.created_at and (s.type_filters is null or r.event_type = any (s.type_filters))
                             and (r.id <= least(p.floor_id, p.last_id)
                                  or (r.id <= p.last_id and pg_visible_in_snapshot(r.xid, p.snapshot))) end
    ) then
        return false;
    end if;

    insert into {schema}.cancellation (record_id, who) select id, actor from unnest(ids) as id on conflict do nothing;
    get diagnostics made = row_count;
    perform {schema}.all_written('cancellation', cardinality(ids), count(*))
      from {schema}.cancellation c where c.record_id = any (ids);
    update {schema}.parked k
       set state = 'discarded', due_at = null, parked_at = clock_timestamp()
     where k.subscription in (select s.name from {schema}.subscription s) and k.record_id = any (ids) and k.state = 'scheduled';
    if made > 0 then
        insert into {schema}.action (who, action, target, count, reason)
        values (actor, 'cancel', jsonb_build_object('record_ids', ids), made, cancel.reason);
        perform {schema}.all_written('action', 1, found::integer);
    end if;
    return true;
end
$$;
