-- purpose: once there are roles nobody calls a function but them; none runs with the rights of its owner anyway

revoke all on all functions in schema {schema} from public;
