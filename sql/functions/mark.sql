-- purpose: note witnesses of this cluster beside its marker, where one of them was lost and another still holds
--
-- The marker, a row of `meta`, names the transaction that wrote it. What rewrites tables (pg_repack) gives it another xmin,
-- as a logical copy does. So the row `marker_witness` names four transactions: that of the marker; that of the catalog's
-- row of the column `xid`, which a rewrite of the table leaves alone; its own, and the marker's xmin, which pg_upgrade
-- leaves alone, though it makes the catalog anew. A rewrite gives both rows one xmin. In a logical copy the others differ;
-- where they are the same by chance the oids are not: see the baseline. What has lost all of them stays a copy until it is
-- rebased. The query `marker` asks the same.
create or replace function {schema}.mark()
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into {schema}.meta as w (key, value)
    select 'marker_witness', concat_ws(' ', m.xid, a.xmin, pg_current_xact_id()::xid, m.xmin)
      from {schema}.meta m
      join {schema}.meta o on o.key = 'marker_oids'
                              and o.value = o.tableoid::text || ' '
                                            || to_regclass(format('%I.record_pkey', {schema_name}))::oid::text
      join pg_attribute a on a.attrelid = m.tableoid and a.attname = 'xid'
      left join {schema}.meta s on s.key = 'marker_witness'
     where m.key = 'marker'
           and (m.xmin = m.xid::xid
                or s.value like m.xid || ' % ' || s.xmin || ' ' || m.xmin
                or s.value like m.xid || ' ' || a.xmin || ' %' and s.xmin = m.xmin)
        on conflict (key) do update set value = excluded.value;
end
$$;
