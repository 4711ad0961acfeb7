-- purpose: Return a number that is equal for dead records that are alike.
--
-- Records are alike if they have the same event type and the same error, apart from words with a digit, quoted parts, and
-- later lines of the error.

create or replace function {schema}.dead_group(event_type text, last_error text) returns bigint
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    -- A word with a digit, or a quoted part, mostly names a particular thing, so # replaces it. The settings of a session do
    -- not change the meaning of an E'' literal.
    return hashtextextended(event_type || E'\n' || left(regexp_replace(
        left(split_part(coalesce(last_error, ''), E'\n', 1), 1000),
        E'\'[^\']*\'|"[^"]*"|[[:alnum:]_-]*[0-9][[:alnum:]_-]*', '#', 'g'), 120), 0);
end
$$;
