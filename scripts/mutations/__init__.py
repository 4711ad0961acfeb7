"""Known ways of losing, doubling, reordering or stalling events, as changes of the code; each is caught by its test."""

from mutations import cursor, observing, ownership, progress, reading
from mutations.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *cursor.MUTATIONS,
    *progress.MUTATIONS,
    *ownership.MUTATIONS,
    *observing.MUTATIONS,
    *reading.MUTATIONS,
)
