-- name: demo_shop
-- The demo shop has this table of its own. A row is an order with its last step: 1 placed, 2 paid, 3 shipped.
create table {schema}.shop_order (
    id    bigint   generated always as identity primary key,
    step  smallint not null default 1,
    total integer  not null
)

-- name: demo_place
-- The statement inserts a new order.
insert into {schema}.shop_order (total) values (%(total)s) returning id, step

-- name: demo_advance
-- The statement moves an order to its next step. It returns no row after the last step. The row lock makes competing clerks take turns.
update {schema}.shop_order set step = step + 1 where id = %(id)s and step < 3 returning id, step

-- name: demo_orders
-- The query returns the last step of every order.
select id, step from {schema}.shop_order
