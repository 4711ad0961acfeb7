-- purpose: in a transaction that goes on after the migration: its settings are no longer those of one

set local client_min_messages to default;
set local check_function_bodies to default;
set local jit to default;
set local lock_timeout to default;
set local partbox.migrating to default;
