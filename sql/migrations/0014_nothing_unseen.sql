-- purpose: functions that name what they read by schema, tell a full notification queue, and take no lock of outsiders
-- breaking: no

-- No table changes: the functions are made anew.
