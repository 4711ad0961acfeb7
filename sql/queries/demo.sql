-- name: demo_shop
-- The demo shop's own table: an order and its last step (1 placed, 2 paid, 3 shipped).
create table {schema}.shop_order (
    id    bigint   generated always as identity primary key,
    step  smallint not null default 1,
    total integer  not null
)

-- name: demo_place
-- A new order.
insert into {schema}.shop_order (total) values (%(total)s) returning id, step

-- name: demo_advance
-- An order's next step, no row after the last one; the row lock puts competing clerks in order.
update {schema}.shop_order set step = step + 1 where id = %(id)s and step < 3 returning id, step

-- name: demo_orders
-- The last step of every order.
select id, step from {schema}.shop_order
