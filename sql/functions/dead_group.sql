-- purpose: a number for dead records that are alike: of one event type, with one error but for the numbers, the quoted
-- parts and what stands in later lines of it

create or replace function {schema}.dead_group(event_type text, last_error text) returns bigint
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    -- What names a thing has a digit in it, or quotes around it. E'' reads the same in every session.
    return hashtextextended(event_type || E'\n' || left(regexp_replace(
        left(split_part(coalesce(last_error, ''), E'\n', 1), 1000),
        E'\'[^\']*\'|"[^"]*"|[[:alnum:]_-]*[0-9][[:alnum:]_-]*', '#', 'g'), 120), 0);
end
$$;
