-- name: roles_missing
-- The query returns those of the given names that no role has.
select wanted.name
  from unnest(%(names)s::text[]) with ordinality as wanted (name, place)
 where not exists (select from pg_roles r where r.rolname::text = wanted.name)
 order by wanted.place

-- name: roles_granted
-- The query returns the roles that may call `publish` or `save` by a grant to them by name, each with its kind. These are the roles of
-- `partbox init`. Of `publish`, only the form with json counts, because the others cannot be called without it.
select case when p.proname = 'publish' then 'publisher' else 'worker' end, r.rolname::text
  from pg_namespace n
  join pg_proc p on p.pronamespace = n.oid
                    and (p.proname = 'save' or p.proname = 'publish' and p.proargtypes[1] = 'json'::regtype)
 cross join lateral aclexplode(p.proacl) a
  join pg_roles r on r.oid = a.grantee
 where n.nspname::text = {schema_name} and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
 group by 1, 2
 order by 1, 2
