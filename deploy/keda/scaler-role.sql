-- The role of the scaler's queries: it reads how much waits and since when, and no payload. Run as the schema's owner who may
-- create roles; give it a password by \password.
create role shop_scaler login;
grant usage on schema partbox to shop_scaler;
grant select (name, paused_at) on partbox.subscription to shop_scaler;
grant select (subscription, partition, last_id) on partbox.partition to shop_scaler;
grant select (partition, id, created_at) on partbox.record to shop_scaler;
grant select (subscription, partition, due_at) on partbox.parked to shop_scaler;
