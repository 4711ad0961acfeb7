"""Change data capture: a configuration with which Debezium reads the log from the WAL, instead of workers."""

from partbox.cdc.connector import Connector, ServerAddress, default_name
from partbox.cdc.forms import CONNECT_PASSWORD, connect, properties
from partbox.cdc.route import TopicRoute

__all__ = ["CONNECT_PASSWORD", "Connector", "ServerAddress", "TopicRoute", "connect", "default_name", "properties"]
