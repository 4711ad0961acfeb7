"""Rates beside others in the same run: a drain beside raw reading, a relay beside the brokers' own libraries.

`scripts/bench` runs it, in a checkout: the brokers are those of the tests.
"""

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[3] / "tests"
"""The folder of the checkout's tests, whose brokers the ratios are measured with."""
