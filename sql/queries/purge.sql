-- name: purge_records
-- One step of deleting records; no row while another purge is at work. See the function, here and below.
select gone, onward
  from {schema}.purge_records(%(retain)s, %(retain_dead)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_dead
-- One step of deleting dead parked rows.
select gone, onward from {schema}.purge_dead(%(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)

-- name: purge_rows
-- One step of deleting rows of another table.
select gone, onward from {schema}.purge_rows(%(table)s, %(retain)s, %(batch)s, %(place)s::bigint[], %(dry_run)s)
