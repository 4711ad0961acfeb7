"""Chaos runs: real worker nodes and publishers under random faults, and a judge of everything that was delivered."""

from partbox_lab.chaos.faults import FAULTS, chosen
from partbox_lab.chaos.report import ChaosReport
from partbox_lab.chaos.run import ChaosPlan, perform

__all__ = ["FAULTS", "ChaosPlan", "ChaosReport", "chosen", "perform"]
