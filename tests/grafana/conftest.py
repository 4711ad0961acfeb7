"""A Prometheus that watches real nodes; they are those of the cluster's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
