"""Fault injection with a judge: publishers of every kind, a maltreated cluster, and a verdict on the history."""

from partbox_lab.chaos.faults import FAULTS, chosen
from partbox_lab.chaos.report import ChaosReport
from partbox_lab.chaos.run import ChaosPlan, perform

__all__ = ["FAULTS", "ChaosPlan", "ChaosReport", "chosen", "perform"]
