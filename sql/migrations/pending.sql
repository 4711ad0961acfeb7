-- purpose: runs the text of one migration unless the schema has it, as one statement: see partbox/db/schema/scripts.py
declare
    found integer;
begin
    if to_regclass(quote_ident({schema_name}) || '.meta') is not null then
        select value::integer into found from {schema}.meta where key = 'schema_version';
    end if;
    if coalesce(found, 0) < {version} then
        execute {text};
    end if;
end
