-- name: purge_records
-- One step of deleting records; no row while another purge is at work. See the function, here and below.
select gone, onward
  from {schema}.purge_records(%(retain)s, %(retain_dead)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_dead
-- One step of deleting dead parked rows.
select gone, onward from {schema}.purge_dead(%(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_keys
-- One step of deleting idempotency keys.
select gone, onward from {schema}.purge_keys(%(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_inbox
-- One step of deleting inbox rows.
select gone, onward from {schema}.purge_inbox(%(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_history
-- One step of deleting rows of the history, of one of its tables.
select gone, onward
  from {schema}.purge_history(%(history)s, %(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)
