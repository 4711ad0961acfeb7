-- purpose: what the sinks of each process have sent, so that whoever looks at the cluster sees a broker in trouble
-- breaking: no

-- `sinks`: an array of objects, one for each sink of this process, written by itself while it sends; null before that.
alter table {schema}.instance add column sinks json;
