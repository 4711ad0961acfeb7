"""An application whose worker processes take a minute to load it; a file tells that they have begun."""

import os
import time
from pathlib import Path

from app import outbox as outbox
from multiprocess import parent_process

if parent_process() is not None:
    Path(f"loading-{os.getpid()}").touch()
    time.sleep(60)  # longer than the test: the node must be stopped while this import runs
