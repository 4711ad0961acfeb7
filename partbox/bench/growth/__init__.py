"""The lines of growth: what the years bring, compared with the plain case in the same run."""

from partbox.bench.family import LineSet
from partbox.bench.growth import instances, records

GROWTH = LineSet((records.FAMILY, instances.FAMILY), connections=1_200)
"""Every line of a run of growth."""
