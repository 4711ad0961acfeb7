-- purpose: Once roles are granted their privileges, let no other role call the functions.
--
-- Most functions run with the rights of the caller. A function that changes segments needs the rights of its owner, so no
-- other role may call it in any case.

revoke all on all functions in schema {schema} from public;
