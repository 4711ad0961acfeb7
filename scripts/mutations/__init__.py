"""Known ways of losing, doubling, reordering or stalling events, as changes of the code; each is caught by its test."""

from mutations import (
    appending,
    archive,
    bell,
    connections,
    cursor,
    handover,
    lists,
    objects,
    observing,
    outages,
    ownership,
    progress,
    quick,
    reading,
    segments,
    sessions,
    sharing,
    sweep,
)  # fmt: skip
from mutations.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *cursor.MUTATIONS,
    *progress.MUTATIONS,
    *quick.MUTATIONS,
    *bell.MUTATIONS,
    *ownership.MUTATIONS,
    *handover.MUTATIONS,
    *observing.MUTATIONS,
    *reading.MUTATIONS,
    *sessions.MUTATIONS,
    *sharing.MUTATIONS,
    *sweep.MUTATIONS,
    *connections.MUTATIONS,
    *objects.MUTATIONS,
    *lists.MUTATIONS,
    *segments.MUTATIONS,
    *archive.MUTATIONS,
    *outages.MUTATIONS,
    *appending.MUTATIONS,
)
