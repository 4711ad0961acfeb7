"""Change data capture: how Debezium is to read the log from the WAL, where no worker does."""

from partbox.cdc.connector import Connector, Place, default_name
from partbox.cdc.forms import CONNECT_PASSWORD, connect, properties
from partbox.cdc.route import Route

__all__ = ["CONNECT_PASSWORD", "Connector", "Place", "Route", "connect", "default_name", "properties"]
