"""The mark of tests that read what Linux alone tells in /proc."""

import sys

import pytest

reads_proc = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, which Linux has")
