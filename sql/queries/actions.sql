-- name: noted
-- Other queries contain this statement. It notes the operator's action whose result is `act`. The column `changed` of `act` is the number
-- of changed rows. The other columns of `act`, except `record_id`, are stored in `target`. `reason` is why, or null. The server
-- appends the role of the session to `who`. If nothing was changed, nothing is noted. The statement returns the id of the note.
insert into {schema}.action (who, action, subscription, target, count, reason)
select %(who)s::text || ' as ' || session_user::text, %(action)s::text, %(subscription)s::text,
       jsonb_strip_nulls(%(target)s::jsonb || pg_catalog.to_jsonb(act) - '{{changed,record_id}}'::text[]), act.changed,
       %(reason)s::text
  from act
 where act.changed > 0
returning id

-- name: acted
-- The statement performs the operator's action `act` and notes it. Both take effect or neither does: a note that was not written is an
-- error. The statement returns the rows of `act`.
with act as materialized ({act}), note as ({noted})
select act.* from act
 where {schema}.all_written('action', (select count(*) from act where act.changed > 0), (select count(*) from note))

-- name: action_counted
-- An action of several statements or transactions has a single note. The statement adds `changed` to the note `id`. At the first change
-- it writes the note, and it writes a new note if the note is gone, as in a purge of the notes themselves. It returns the id of the note.
with more as (
    update {schema}.action set count = count + %(changed)s::bigint where id = %(id)s::bigint returning id
), act as (
    select %(changed)s::bigint as changed where not exists (select from more)
), note as ({noted}), written as (
    select id from note union all select id from more
)
select max(id) from written having {schema}.all_written('action', 1, count(*))

-- name: actions_list
-- The query returns the actions of operators, the newest first. The parameter `action` is the full name of an action, such as "dead
-- replay", or its verb alone, such as "replay".
select a.id, a.at, a.who, a.action, a.subscription,
       (case jsonb_typeof(a.target) when 'object' then a.target else '{{}}' end)::text, coalesce(a.count, 0), a.reason
  from {schema}.action a
 where (%(action)s::text is null or %(action)s in (a.action, split_part(a.action, ' ', 2)))
       and (%(subscription)s::text is null or a.subscription = %(subscription)s)
       and (%(since)s::timestamptz is null or a.at >= %(since)s)
       and (%(until)s::timestamptz is null or a.at < %(until)s)
 order by a.id desc
 limit %(limit)s
