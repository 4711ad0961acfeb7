-- purpose: why a JSON text cannot be a payload or headers, although PostgreSQL takes it as json; null if it can

create or replace function {schema}.unfit_json(doc json) returns text
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    -- Escaped backslashes out of the way: each \u that is left is a real escape. E'' reads the same in every session.
    escapes text := replace(doc::text, E'\\\\', '');
begin
    if position(E'\\u' in escapes) = 0 then
        return null;
    elsif position(E'\\u0000' in escapes) > 0 then
        return 'holds a NUL character, which PostgreSQL text cannot: remove it';
    end if;
    escapes := regexp_replace(
        escapes, E'\\\\u[dD][89abAB][0-9a-fA-F]{{2}}\\\\u[dD][c-fC-F][0-9a-fA-F]{{2}}', '', 'g');
    if escapes ~ E'\\\\u[dD][89a-fA-F]' then
        return 'holds a lone surrogate, which is no text: write it properly';
    end if;
    return null;
end
$$;
