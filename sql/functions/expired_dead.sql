-- purpose: whether a parked row is a dead one that may go: it died before this time, blocks nothing, and owes no hook
--
-- A due time on a dead row says that its dead-letter hook is still to be called.
create or replace function {schema}.expired_dead(k {schema}.parked, before timestamptz)
returns boolean language sql immutable as $$
    select k.state = 'dead' and not k.blocks and k.due_at is null and k.parked_at < before
$$;
