-- purpose: Return a number that differs for each log, id sequence or set of segments; return null if row security hides records.
create or replace function {schema}.log_now() returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    log oid := to_regclass(quote_ident({schema_name}) || '.record');
begin
    if current_setting('row_security') <> 'off' and row_security_active(log) then
        return null;
    end if;
    return hashtextextended(concat_ws(' ', log, to_regclass(quote_ident({schema_name}) || '.record_id_seq')::oid, (
               select string_agg(i.inhrelid::text, ' ' order by i.inhrelid) from pg_inherits i
                where i.inhparent = log and not i.inhdetachpending)), 0);
end
$$;
