-- purpose: Write everything that an owner saves: cursors, parked rows, finished rows and releases. An owner makes no other write.
--
-- The fence of a save is (owner, epoch). The function returns the partitions that `me` still owns with the given epochs. If
-- `me` no longer owns one of the partitions, nothing is written. The caller then drops the partitions that are not returned
-- and sends the rest again.
--
--   snapshot_no   the index, from 1, of the new snapshot in `snapshots`; null leaves the cursor unchanged
--   last_ids      null if no record was finished since the last save; `saved_at` is then unchanged. A charge has null, too: another
--                 thread may send a charge while a save is under way, and the progress note of that save relies on the save before
--   floors        the new floor_id; null leaves it unchanged
--   release       true frees the partition
--   parks         a JSON array; partbox/protocol/rows.py explains the keys of its entries:
--                 [{{"p", "id", "at", "ai", "et", "s", "b", "n", "in" | "due", "e", "t", "new", "c", "l", "w", "o", "sec"}}] writes a row
--                 of `parked`. An entry with an outcome "o" also adds a row to `attempt`. An entry without "new" does nothing else.
--                 {{"p", "f", "at", "ai"}} starts a spill: records of the key from the id f on may have no row in `parked`.
--                 {{"p", "r"}} writes the progress of the partition to `progress_note`, and that it is read up to the id r.
--   done_ids      the parked records that are finished
--   durable       false sets synchronous_commit = off for this save
--
-- A save is one call in autocommit. If a process froze between two statements of a transaction, it would keep its
-- partition rows locked, and the bury that frees them would wait for it.
create or replace function {schema}.save(
    subscription text, me uuid, partitions smallint[], epochs bigint[], snapshot_no integer[], last_ids bigint[],
    floors bigint[], release boolean[], snapshots pg_snapshot[], parks json, done_ids bigint[], durable boolean
) returns setof smallint language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
#variable_conflict use_column
declare
    mine smallint[];
    missing bigint;
    touched bigint;
    changed bigint[];
begin
    -- A crash of the server may lose such a save, and events then come again. A saved cursor always fits the log:
    -- whatever its snapshot shows as ended is in the WAL before it. A save with a handler's effects is durable.
    if not durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;

    -- Lock the partition rows, in order, before anything is checked. With an EXISTS instead, a bury and a claim could come
    -- between the check and the commit.
    select coalesce(array_agg(held.partition), '{{}}') into mine
      from (select p.partition, p.owner, p.epoch
              from {schema}.partition p
             where p.subscription = save.subscription and p.partition = any (save.partitions)
             order by p.partition
               for no key update) held
      join unnest(save.partitions, save.epochs) as sent (partition, epoch)
        on sent.partition = held.partition and sent.epoch = held.epoch
     where held.owner = save.me;

    if cardinality(mine) < cardinality(save.partitions) then
        -- Raise an error if a partition is missing because its row is gone.
        perform {schema}.all_cursors(save.subscription);
        return query select unnest(mine);
        return;
    end if;

    if save.parks is not null then
        -- The records above r are read after this save was composed, and so after the previous save. If the previous save is
        -- more than a minute old, its progress is noted, too. Otherwise its events would seem to have been delivered just
        -- now.
        insert into {schema}.progress_note (subscription, partition, at, last_id, snapshot, read_at, read_id, epoch, instance,
                                            claimed_id, instance_id)
        select p.subscription, p.partition, state.*, p.epoch, {schema}.process_of(save.me), p.claimed_id, save.me
          from json_to_recordset(save.parks) as j (p smallint, r bigint)
          join {schema}.partition p on p.subscription = save.subscription and p.partition = j.p
          join unnest(save.partitions, save.snapshot_no, save.last_ids) as sent (partition, no, last_id)
            on sent.partition = p.partition
         cross join lateral (
             values (clock_timestamp(), coalesce(sent.last_id, p.last_id), coalesce(save.snapshots[sent.no], p.snapshot),
                     greatest(p.saved_at, p.claimed_at), j.r),
                    (p.saved_at, p.last_id, p.snapshot, null, null)) as state (at, last_id, snapshot, read_at, read_id)
         where j.r is not null
               and (state.read_id is not null
                    or p.saved_at >= p.claimed_at and p.saved_at < clock_timestamp() - interval '1 minute')
            on conflict do nothing;
    end if;

    update {schema}.partition p
       set snapshot = case when sent.no is null then p.snapshot else save.snapshots[sent.no] end,
           last_id  = coalesce(sent.last_id, p.last_id),
           floor_id = coalesce(sent.floor_id, p.floor_id),
           owner    = case when sent.release then null else p.owner end,
           -- Once the cursor has passed suspect_until_id, each suspect is done, or is parked and will be charged before it
           -- runs.
           suspect_until_id = case when p.suspect_until_id > coalesce(sent.last_id, p.last_id) then p.suspect_until_id end,
           saved_at = case when sent.last_id is null then p.saved_at else clock_timestamp() end
      from unnest(save.partitions, save.snapshot_no, save.last_ids, save.floors, save.release)
           as sent (partition, no, last_id, floor_id, release)
     where p.subscription = save.subscription and p.partition = sent.partition;
    get diagnostics touched = row_count;
    if touched < cardinality(mine) then
        perform {schema}.refuse('a trigger keeps rows of table partition as they are: nothing was saved');
    end if;

    if save.parks is not null then
        with sent as materialized (
            select * from json_to_recordset(save.parks) as j (p smallint, f bigint, "at" text, ai text) where j.f is not null
        ), started as (
            insert into {schema}.spill (subscription, partition, key_hash, aggregate_type, aggregate_id, from_id)
            select save.subscription, j.p, sha256(convert_to(length(j."at") || ' ' || j."at" || j.ai, 'UTF8')), j."at", j.ai, j.f
              from sent j
            returning true
        )
        select (select count(*) from sent) - (select count(*) from started) into missing;
        if missing > 0 then
            perform {schema}.refuse('a trigger keeps rows out of table spill: nothing was saved');
        end if;

        -- If an earlier owner has noted the start of an attempt, the death of that owner has interrupted the attempt.
        insert into {schema}.attempt (subscription, record_id, at, attempt, outcome)
        select k.subscription, k.record_id, k.started_at, k.attempts, 'interrupted'
          from json_to_recordset(save.parks) as j (id bigint, new boolean)
          join {schema}.parked k on k.subscription = save.subscription and k.record_id = j.id
          join {schema}.partition p on p.subscription = k.subscription and p.partition = k.partition
         where not j.new and k.started_at < p.claimed_at
            on conflict do nothing;
        with told as (
            insert into {schema}.attempt (subscription, record_id, at, attempt, outcome, instance, seconds, error)
            select save.subscription, j.id, clock_timestamp(), j.n, j.o, {schema}.process_of(save.me), j.sec, j.e
              from json_to_recordset(save.parks) as j (id bigint, n integer, o text, sec float8, e text)
             where j.o is not null
                on conflict do nothing
            returning record_id
        )
        select array_agg(told.record_id) into changed from told;
        if changed is not null then
            perform {schema}.attempts_kept(save.subscription, changed);
        end if;

        with sent as materialized (
            select *
              from json_to_recordset(save.parks) as j (p smallint, id bigint, "at" text, ai text, et text, s text,
                                                       b boolean, n integer, "in" float8, due timestamptz, e text, t text,
                                                       new boolean)
             where j.new
        ), written as (
            insert into {schema}.parked as k (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,
                                              state, blocks, attempts, due_at, last_error, traceback)
            select save.subscription, j.id, j.p, j.at, j.ai, j.et, j.s, j.b, j.n,
                   coalesce(j.due, case when j."in" is not null then
                                        clock_timestamp() + least(j."in", 36500 * 86400.0) * interval '1 second' end), j.e, j.t
              from sent j
             order by j.id
                -- A record that was parked ahead of the cursor is read again after a crash. Its row stays as it is:
                -- otherwise its attempts would begin at 0 again.
                on conflict (subscription, record_id) do nothing
            returning true
        )
        select (select count(*) from sent) - (select count(*) from written) into missing;
        -- A record that was parked before has a row already. If a record has no row now, a trigger has dropped the row, and
        -- the cursor would pass an event that is lost.
        if missing > 0 and exists (
            select from json_to_recordset(save.parks) as j (id bigint, new boolean)
             where j.new and not exists (
                 select from {schema}.parked k where k.subscription = save.subscription and k.record_id = j.id)
        ) then
            perform {schema}.refuse('a trigger keeps rows out of table parked: nothing was saved');
        end if;

        with written as (
            update {schema}.parked k
               set state = j.s,
                   last_error = case when j.w then coalesce(k.last_error, j.e) else coalesce(j.e, k.last_error) end,
                   traceback = case when j.e is null or j.w then k.traceback else j.t end,
                   blocks = case when j.l then k.blocks else j.b end,
                   attempts = case when j.l then k.attempts else j.n end,
                   due_at = coalesce(j.due, case when j."in" is not null then
                                                 clock_timestamp() + least(j."in", 36500 * 86400.0) * interval '1 second' end),
                   parked_at = case when j.s = 'dead' and k.state <> 'dead' then clock_timestamp() else k.parked_at end,
                   started_at = case when j.c then clock_timestamp() end
              from json_to_recordset(save.parks) as j (id bigint, s text, b boolean, n integer, "in" float8,
                                                       due timestamptz, e text, t text, new boolean, c boolean, l boolean, w boolean)
             where not j.new and k.subscription = save.subscription and k.record_id = j.id
                   and (j.l is not true or k.state = 'dead')
            returning k.record_id
        )
        select count(*), array_agg(written.record_id) into touched, changed from written;
        if touched < (select count(*) from json_to_recordset(save.parks) as j (new boolean) where not j.new) and exists (
            select from json_to_recordset(save.parks) as j (id bigint, new boolean, l boolean)
              join {schema}.parked k on k.subscription = save.subscription and k.record_id = j.id
             where not j.new and (j.l is not true or k.state = 'dead') and k.record_id <> all (coalesce(changed, '{{}}'))
        ) then
            perform {schema}.refuse('a trigger keeps rows of table parked as they are: nothing was saved');
        end if;
    end if;

    if cardinality(save.done_ids) > 0 then
        with gone as (
            delete from {schema}.parked k where k.subscription = save.subscription and k.record_id = any (save.done_ids)
            returning k.record_id, k.attempts, k.started_at is not null as charged, k.state
        ), told as (
            insert into {schema}.attempt (subscription, record_id, attempt, outcome, instance)
            select save.subscription, gone.record_id, gone.attempts + (not gone.charged)::integer,
                   case when gone.charged then 'repeated' else 'done' end, {schema}.process_of(save.me)
              from gone
             -- A delayed record that was delivered at the first go leaves no row, as a record that was not delayed.
             where (gone.state <> 'scheduled' or gone.attempts > 0 or gone.charged)
                   and not exists (select from json_to_recordset(save.parks) as j (id bigint, o text)
                                    where j.id = gone.record_id and j.o = 'ignored')
                on conflict do nothing
            returning record_id
        )
        select (select count(*) from gone), (select array_agg(told.record_id) from told) into touched, changed;
        if changed is not null then
            perform {schema}.attempts_kept(save.subscription, changed);
        end if;
        if touched < cardinality(save.done_ids) and exists (
            select from {schema}.parked k where k.subscription = save.subscription and k.record_id = any (save.done_ids)
        ) then
            perform {schema}.refuse('a trigger keeps rows in table parked: nothing was saved');
        end if;
    end if;

    return query select unnest(mine);
end
$$;
