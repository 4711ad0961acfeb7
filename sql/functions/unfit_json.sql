-- purpose: Return why a JSON text that PostgreSQL accepts cannot be a payload or headers; return null if it can.
--
-- The function refuses JSON that workers would read differently or not at all. Workers know integers of 64 bits, doubles, and
-- 1,024 levels of nesting. The checks of Python are in codecs.py. Most payloads show no sign of such trouble, so each check
-- begins with a cheap test: for an escape, for a number with many digits or a large exponent, or for many brackets.
create or replace function {schema}.unfit_json(doc json) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    body text := doc::text;
    -- Escaped backslashes are removed, so each \u that is left is a real escape. The settings of a session do not change the
    -- meaning of an E'' literal.
    escapes text := replace(body, E'\\\\', '');
    number text;
    -- The pattern matches a string, or a character that belongs to no string and is no bracket.
    outside text := E'[^][{{}}"]|"(?:[^"\\\\]|\\\\.)*"';
    shallow text := outside;
begin
    if position(E'\\u' in escapes) > 0 then
        if position(E'\\u0000' in escapes) > 0 then
            return 'holds a NUL character, which PostgreSQL text cannot: remove it';
        end if;
        escapes := regexp_replace(
            escapes, E'\\\\u[dD][89abAB][0-9a-fA-F]{{2}}\\\\u[dD][c-fC-F][0-9a-fA-F]{{2}}', '', 'g');
        if escapes ~ E'\\\\u[dD][89a-fA-F]' then
            return 'holds a lone surrogate, which is no text: write it properly';
        end if;
    end if;

    -- The first test searches every position where a number may begin, also in strings. The second test reads number by
    -- number, which takes ten times as long.
    if body ~ E'(?:^|[,:\\s\\[])(?:[-0-9][0-9]{{19}}|-?0\\.0{{19}}|-?[0-9.]+[eE][+-]?[0-9]{{3}})' then
        begin
            for number in
                select token[1] from regexp_matches(body, E'"(?:[^"\\\\]|\\\\.)*"|(-?[0-9][0-9.eE+-]*)', 'g') as token
                 where token[1] ~ '[0-9]{{19}}|[eE][+-]?[0-9]{{3}}'
            loop
                if number ~ '[.eE]' then
                    perform number::float8;
                elsif length(number) > 20
                      or not number::numeric between -9223372036854775808 and 18446744073709551615 then
                    return 'holds an integer beyond 64 bits: give it as text';
                end if;
            end loop;
        exception when numeric_value_out_of_range then
            return 'holds a number beyond a double: give it as text';
        end;
    end if;

    if octet_length(body) > 2048
       and octet_length(body) - octet_length(replace(replace(body, '[', ''), '{{', '')) > 1024 then
        for level in 1..6 loop
            shallow := outside || '|[[{{](?:' || shallow || ')*[]}}]';
        end loop;
        begin
            -- The regular expression is ten times as fast as jsonb.
            if body !~ ('^(?:' || shallow || ')*$')
               and doc::jsonb @? 'strict $.**{{1024 to last}} ? (@.type() == "array" || @.type() == "object")' then
                return 'is nested more than 1024 levels deep: make it flatter';
            end if;
        -- jsonb keeps all digits of a number, up to a limit.
        exception when numeric_value_out_of_range then
            return 'holds a number of too many digits: give it as text';
        end;
    end if;
    return null;
end
$$;
