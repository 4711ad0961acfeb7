-- purpose: why an operator did something, in the words of the operator
-- breaking: no

alter table {schema}.action add column reason text;

-- The function `cancel` takes a reason now. A call with three arguments means the new one.
drop function if exists {schema}.cancel(uuid, text, text);

comment on table {schema}.action is
    'What operators did: who, when, what, on what, how many, and why if they said so. Rows are added, and purged.';
