-- purpose: once there are roles nobody calls a function but them
--
-- Most run with the rights of who calls them. Those that change segments run with their owner's, who alone may: nobody
-- else calls them in any case.

revoke all on all functions in schema {schema} from public;
