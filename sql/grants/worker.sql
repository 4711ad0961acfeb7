-- purpose: Grant a role the privileges of workers, supervisors and purges.
--
-- The commands status, doctor, top, dashboard, dead and blocked need these privileges, too.
--
-- A plan locks its subscription's row, and an archiver locks the view `archiving`. Both locks need a right to update.
--
-- The role does not publish, draws no ids, makes and drops no subscriptions, and changes no record. A handler that publishes,
-- and an import, need the role of a publisher as well. Doctor reads the default segment by its own name. Purges store their
-- progress in `meta`.

grant usage on schema {schema} to {role};
grant select, delete on {schema}.record to {role};
grant select on {schema}.record_default, {schema}.subscription to {role};
grant update (paused_at) on {schema}.subscription to {role};
grant select, update on {schema}.archiving to {role};
grant select on {schema}.record_status, {schema}.backlog, {schema}.dead, {schema}.delivery to {role};
grant select on sequence {schema}.record_id_seq to {role};
grant select, update on sequence {schema}.life, {schema}.bell to {role};
grant select, insert (key, value), update (value) on {schema}.meta to {role};
grant select, update on {schema}.partition to {role};
grant select, insert (subscription, node, hostname, pid, version, lease, supervisor, reads_spills),
    update (heartbeat_at, draining, running, sinks, limits), delete on {schema}.instance to {role};
grant select, insert, update, delete on {schema}.parked to {role};
grant select, insert (subscription, partition, key_hash, aggregate_type, aggregate_id, from_id), update (from_id), delete
    on {schema}.spill to {role};
grant select, delete on {schema}.idempotency to {role};
grant select, insert (consumer, event_id), delete on {schema}.inbox to {role};
grant select, insert on {schema}.imported to {role};
grant select, insert, delete on {schema}.attempt, {schema}.progress_note to {role};
grant select, insert (instance_id, subscription, types), update (at, types), delete on {schema}.handled_types to {role};
grant select, delete on {schema}.cancellation to {role};
grant select, insert (who, action, subscription, target, count, reason), update (count), delete on {schema}.action to {role};
grant select, insert (subscription, handler, rate, at_once, changed_by),
    update (rate, at_once, changed_at, changed_by), delete on {schema}.handler_limit to {role};
grant select, insert (subscription, kind, handler, value, changed_by), delete on {schema}.pause to {role};
grant execute on function
    {schema}.drawn(), {schema}.intact(), {schema}.all_cursors(text), {schema}.tables_now(), {schema}.tables_saved(),
    {schema}.log_now(), {schema}.log_planned(), {schema}.refuse(text),
    {schema}.all_written(text, bigint, bigint), {schema}.reread(text, smallint[]),
    {schema}.process_of(uuid), {schema}.attempts_kept(text, bigint[]), {schema}.id_at(timestamptz),
    {schema}.cancel(uuid, text, text, text), {schema}.cancelling(smallint, bigint), {schema}.may_start(text, bigint[]),
    {schema}.heartbeat(uuid[], boolean[]), {schema}.bury(uuid[], boolean), {schema}.claim(text, uuid), {schema}.digest(text, uuid),
    {schema}.is_calm(text, uuid, bigint, bigint),
    {schema}.plan(text, uuid[], uuid[], uuid[]), {schema}.tell(text), {schema}.life_anew(), {schema}.mark(),
    {schema}.locked(text, boolean),
    {schema}.save(text, uuid, smallint[], bigint[], integer[], bigint[], bigint[], boolean[], pg_snapshot[], json,
                  bigint[], boolean),
    {schema}.refill(text, uuid, smallint, bigint, bigint, json, text[], integer),
    {schema}.replay(text, bigint[]), {schema}.discard(text, bigint[]), {schema}.retry_now(text, text, text),
    {schema}.skip(text, text, text, text, integer), {schema}.dead_group(text, text),
    {schema}.expired_dead({schema}.parked, timestamptz),
    {schema}.purge_records(float8, float8, integer, bigint[], boolean),
    {schema}.purge_dead(float8, integer, bigint[], boolean), {schema}.purge_keys(float8, integer, bigint[], boolean),
    {schema}.purge_inbox(float8, integer, bigint[], boolean),
    {schema}.purge_ended(text, integer, bigint[], boolean),
    {schema}.purge_rows(text, float8, integer, bigint[], boolean),
    {schema}.segment_ranges(), {schema}.segment_busy(oid[]), {schema}.segment_state(oid, bigint, bigint),
    {schema}.segment_proof(),
    {schema}.segment_holds(bigint, bigint, timestamptz), {schema}.segment_add(bigint, bigint),
    {schema}.segment_exclude(bigint, bigint), {schema}.segment_prove(), {schema}.segment_empty(bigint, float8),
    {schema}.segment_detach(bigint), {schema}.segment_drop() to {role};
