"""Fault injection with a judge: publishers of every kind, a maltreated cluster, and what became of the events."""

from partbox.chaos.faults import FAULTS, chosen
from partbox.chaos.report import Report
from partbox.chaos.run import Plan, perform

__all__ = ["FAULTS", "Plan", "Report", "chosen", "perform"]
