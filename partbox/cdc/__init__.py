"""Change data capture: a configuration with which Debezium reads the log from the WAL, instead of workers."""

from partbox.cdc.connector import (
    CONNECT_PASSWORD,
    Connector,
    ServerAddress,
    TopicRoute,
    connect,
    default_name,
    properties,
)

__all__ = ["CONNECT_PASSWORD", "Connector", "ServerAddress", "TopicRoute", "connect", "default_name", "properties"]
