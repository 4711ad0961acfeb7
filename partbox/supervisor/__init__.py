"""One node: its worker processes and their membership."""

from partbox.supervisor.embedded import EmbeddedWorker
from partbox.supervisor.purging import Purging
from partbox.supervisor.running import run
from partbox.supervisor.supervisor import Supervisor

__all__ = ["EmbeddedWorker", "Purging", "Supervisor", "run"]
