-- purpose: `publish` takes headers of any type, whatever type the payload has: the functions of before are in its way
-- breaking: no

drop function if exists {schema}.publish(text, json, text, text, text, json, timestamptz, interval, text);
drop function if exists {schema}.publish(text, jsonb, text, text, text, jsonb, timestamptz, interval, text);
drop function if exists {schema}.publish(text, text, text, text, text, text, timestamptz, interval, text);
