-- purpose: Store the witnesses of this cluster again if one of them was lost and another still holds.
--
-- The marker is a row of `meta` that names, in `xid`, the transaction that wrote it. A rewrite of the table (by pg_repack)
-- gives the marker another xmin, as a logical copy does. Therefore the row `marker_witness` names four transactions, in this
-- order:
--
--   1. the transaction in the marker;
--   2. the transaction that wrote the catalog's row for the column `xid`: a rewrite of the table does not change it;
--   3. the transaction that wrote the row `marker_witness` itself;
--   4. the marker's xmin: pg_upgrade keeps the third and the fourth, although pg_upgrade creates the catalog anew.
--
-- A rewrite gives both rows the same xmin. In a logical copy the transactions differ. If they are the same by chance, the
-- oids differ (see the baseline migration). A schema that has lost all witnesses counts as a copy until it is rebased. The
-- query `marker` tests the same conditions.
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
