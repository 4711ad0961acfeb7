"""The libraries whose event loops run async handlers, as parameters of tests."""

from importlib.util import find_spec

import pytest

# There is no uvloop for Windows, and `scripts/venv test` installs it everywhere else.
NO_UVLOOP = pytest.mark.skipif(find_spec("uvloop") is None, reason="scripts/venv test installs uvloop, but on Windows")
LIBRARIES = ("asyncio", pytest.param("uvloop", marks=NO_UVLOOP))
