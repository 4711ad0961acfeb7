-- name: first_parked
-- Other queries and functions contain this query. It returns each subscription that has parked rows, with the
-- lowest record id of its parked rows. The query searches the index once for each such subscription.
with recursive first as (
    (select k.subscription, k.record_id from {schema}.parked k order by k.subscription, k.record_id limit 1)
    union all
    select later.subscription, later.record_id
      from first
     cross join lateral (
           select k.subscription, k.record_id from {schema}.parked k
            where k.subscription > first.subscription order by k.subscription, k.record_id limit 1) later
)
select subscription, record_id from first

-- name: purge_records
-- The query runs one step of deleting records; see the function, as for the queries below. It returns the number of deleted rows, and
-- where the next step begins (null at the end). It returns no row while another purge runs.
select gone, onward
  from {schema}.purge_records(%(retain)s, %(retain_dead)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_dead
-- The query runs one step of deleting dead parked rows.
select gone, onward from {schema}.purge_dead(%(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_ended
-- The query runs one step of deleting rows of the given table whose records are gone.
select gone, onward from {schema}.purge_ended(%(table)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_rows
-- The query runs one step of deleting rows of the given table.
select gone, onward from {schema}.purge_rows(%(table)s, %(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)
