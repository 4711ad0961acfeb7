-- name: demo_found
-- A row if the demo's schema is there already.
select from pg_namespace where nspname = %(schema)s

-- name: demo_shop
-- The demo shop's own table: an order and how far it is (1 placed, 2 paid, 3 shipped).
create table {schema}.shop_order (
    id    bigint   generated always as identity primary key,
    step  smallint not null default 1,
    total integer  not null
)

-- name: demo_place
-- A new order.
insert into {schema}.shop_order (total) values (%(total)s) returning id, step

-- name: demo_advance
-- An order's next step, none if it was the last; of two who want it, the row lock makes one wait.
update {schema}.shop_order set step = step + 1 where id = %(id)s and step < 3 returning id, step

-- name: demo_orders
-- How far every order is.
select id, step from {schema}.shop_order

-- name: demo_cluster
-- One row: who lives, and of all partitions in order the owner, the assignee and the seconds since the last claim.
select (select coalesce(json_agg(i order by i.started_at, i.pid), '[]')
          from (select instance_id, pid, node, draining, started_at,
                       greatest(0, extract(epoch from clock_timestamp() - started_at)) as age,
                       greatest(0, extract(epoch from clock_timestamp() - heartbeat_at)) as heartbeat_age
                  from {schema}.instance where subscription = 'default') i),
       array_agg(p.owner order by p.partition), array_agg(p.assignee order by p.partition),
       array_agg(p.epoch order by p.partition), extract(epoch from clock_timestamp() - max(p.claimed_at))::float8
  from {schema}.partition p
 where p.subscription = 'default'

-- name: demo_drop
-- Leave nothing behind in a user's database.
drop schema {schema} cascade
