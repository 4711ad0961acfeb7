-- purpose: Return whether a parked row died before the time `before` and can be deleted.
--
-- Such a row blocks nothing and has no `due_at`. A dead row with a `due_at` still needs a call of its dead-letter hook.
create or replace function {schema}.expired_dead(k {schema}.parked, before timestamptz)
returns boolean language sql immutable as $$
    select k.state = 'dead' and not k.blocks and k.due_at is null and k.parked_at < before
$$;
