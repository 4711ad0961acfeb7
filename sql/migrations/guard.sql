-- purpose: in texts that are run elsewhere, after the lock: ends a run in a schema that this text was not made for
declare
    found integer;
    stranger text;
begin
    -- A setting of the transaction: where each statement is committed by itself, neither it nor the lock is there now.
    if coalesce(current_setting('partbox.migrating', true), '') <> 'on' then
        raise exception 'partbox: these statements must run in one transaction: let the tool open one';
    end if;

    if to_regclass(quote_ident({schema_name}) || '.meta') is not null then
        if exists (select from {schema}.meta where key = 'inbox_only') then
            raise exception 'partbox: schema % holds nothing but an inbox: partbox init makes it a whole outbox',
                {schema_name};
        end if;
        select value::integer into found from {schema}.meta where key = 'schema_version';
    end if;
    if found between 1 and {baseline} - 1 then
        raise exception 'partbox: schema % is at version %, which was made before partbox 0.1.0: bring it to version % first',
            {schema_name}, found, {baseline};
    end if;
    if coalesce(found, 0) not between {least} and {most} then
        raise exception 'partbox: schema % is at version %, and this text is for %',
            {schema_name}, coalesce(found, 0),
            case when {least} = {most}
                 then format('version %s: print it by partbox migrate --sql --from %s', {least}, coalesce(found, 0))
                 else format('versions up to %s: upgrade partbox', {most}) end;
    end if;

    -- What is added is granted to roles by name.
    select r.rolname::text into stranger
      from pg_namespace n
      join pg_proc p on p.pronamespace = n.oid and p.proname in ('publish', 'save')
     cross join lateral aclexplode(p.proacl) a
      join pg_roles r on r.oid = a.grantee
     where n.nspname::text = {schema_name} and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
           and r.rolname::text <> all (case when p.proname = 'publish' then {publishers}::text[]
                                            else {workers}::text[] end)
     order by 1 limit 1;
    if stranger is not null then
        raise exception 'partbox: role % was granted what it needs, and this text does not name it: %', stranger,
            'give it by --publisher-role or --worker-role as before, so that it gets what is new';
    end if;
end
