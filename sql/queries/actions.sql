-- name: noted
-- A part of others: the note of what `act` has changed, a number; what else it answers is noted with the target. The
-- database says which role it was.
insert into {schema}.action (who, action, subscription, target, count)
select %(who)s::text || ' as ' || session_user::text, %(action)s::text, %(subscription)s::text,
       jsonb_strip_nulls(%(target)s::jsonb || pg_catalog.to_jsonb(act) - '{{changed,record_id}}'::text[]), act.changed
  from act
 where act.changed > 0
returning id

-- name: acted
-- What an operator does by the query `act`, and its note, in one statement: both are there, or neither.
with act as materialized ({act}), note as ({noted})
select act.* from act
 where {schema}.all_written('action', (select count(*) from act where act.changed > 0), (select count(*) from note))

-- name: action_counted
-- One note for an act of several statements or transactions: made by the first that changes anything, counted on by others;
-- made anew if it is gone, as in a purge of the notes themselves.
with more as (
    update {schema}.action set count = count + %(changed)s::bigint where id = %(id)s::bigint returning id
), act as (
    select %(changed)s::bigint as changed where not exists (select from more)
), note as ({noted}), written as (
    select id from note union all select id from more
)
select max(id) from written having {schema}.all_written('action', 1, count(*))

-- name: actions_list
-- What operators did, newest first. An action is asked for by its words, or by its verb alone.
select a.id, a.at, a.who, a.action, a.subscription,
       (case jsonb_typeof(a.target) when 'object' then a.target else '{{}}' end)::text, coalesce(a.count, 0)
  from {schema}.action a
 where (%(action)s::text is null or %(action)s in (a.action, split_part(a.action, ' ', 2)))
       and (%(subscription)s::text is null or a.subscription = %(subscription)s)
       and (%(since)s::timestamptz is null or a.at >= %(since)s)
       and (%(until)s::timestamptz is null or a.at < %(until)s)
 order by a.id desc
 limit %(limit)s
