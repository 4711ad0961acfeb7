"""Known ways of losing, doubling, reordering or stalling events, as changes of the code; each is caught by its test."""

from mutations import connections, cursor, lists, objects, observing, ownership, progress, reading, sessions, sharing
from mutations.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *cursor.MUTATIONS,
    *progress.MUTATIONS,
    *ownership.MUTATIONS,
    *observing.MUTATIONS,
    *reading.MUTATIONS,
    *sessions.MUTATIONS,
    *sharing.MUTATIONS,
    *connections.MUTATIONS,
    *objects.MUTATIONS,
    *lists.MUTATIONS,
)
