"""The bell: an idle worker falls asleep, and a publisher wakes it.

The flag is *raised* and *lowered*; a publisher that finds it up *rings*, by a notification. A worker is in one of:

    AWAKE      nobody knows that it listens: it looks again and again
    RAISED     the flag is up; who asked before may not have committed yet, so it stays awake for `HEARD_TIME`
    NAPPING    it has looked since, has all there was, and sleeps until a ring, or for a nap at most

    AWAKE ──> RAISED       the flag is raised, by it or by another, and was down before
    AWAKE ──> NAPPING      the flag has been up for `HEARD_TIME`
    RAISED ──> NAPPING     it has looked once more, `HEARD_TIME` after the flag was raised
    any ──> AWAKE          a look: not all was read, the log moves on, or the flag is down

The flag is a *time*, in a sequence: until when somebody sleeps. Who publishes asks for it after its ids are drawn, and
rings while it lies ahead: 1 to 3,000 ms, for a clock that is set back would leave it up for ever. Each of these rules
has its reason in a run that failed without it:

- It is raised when the log stood still for `STILL_TIME`, unless another has raised it for long enough. While it stays
up,
  whatever comes is rung for, so a worker that has read what came sleeps on at once.
- It is never lowered on waking: it may be another's by then, who would sleep unheard.
- A worker for which the log moves on, with less than `MIN_ID_GAP` from one id to the next, for `STILL_TIME`, lowers it
and calls
  `back`, upon which every sleeper looks: else one idle worker would cost busy publishers two thirds of their rate.
- A transaction may ask before the flag is up and commit after the last look. Its ids are drawn, so the floor of the
  page lies below the value of the id sequence: the nap is `SHORT_NAP` then.
- A publisher that heard "nobody sleeps" does not ask again for `NO_ASK_TIME`, from when it *sent* that statement: less
than
  `HEARD_TIME`. It never remembers having rung: a savepoint takes a ring back.

Nothing depends on a ring: one that is lost costs the rest of a nap. Nothing fails by one either: nobody raises the flag
or rings while the server's queue of notifications is filling up (`queue_has_room` in `sql/queries/bell.sql`).
"""

from enum import Enum
from hashlib import md5
from typing import NamedTuple

STILL_TIME = (
    0.005  # seconds in which the id sequence stood still: then the flag is raised; or moved on: then it is lowered
)
MIN_ID_GAP = 0.002  # seconds from one id to the next at least, or they come too fast for a ring each
HEARD_TIME = 0.040  # seconds to stay awake once it is up
RAISED_POLL = 0.003  # seconds from one look to the next, while it stays awake for that
NO_ASK_TIME = 0.020  # seconds for which a publisher believes that nobody sleeps: longer than an answer takes under load
NAP = 0.250  # and up to `protocol.lease.LONGEST`
SHORT_NAP = 0.040  # a nap while a transaction is open that may have asked too early
MIN_FLAG_TIME = 0.950  # seconds for which it is up at least, so several naps: raising it is a statement
FLAG_PER_NAP = 1.2  # and longer naps of which it lasts so many: one statement serves several who sleep like that
MAX_FLAG_AHEAD_MS = 3_000  # milliseconds: further ahead it is no time of ours
MAX_ANSWER_LAG = 0.050  # seconds that an answer may have been on its way

RING_ALL = "*"
RING_BACK = "back"
RING_CHANGED = "changed"  # and a subscription: its plan, or parked rows of it, by others than their owner

_LONGEST = 63  # bytes of a channel


def channel(schema: str) -> str:
    """The channel of the rings of a schema."""
    name = f"partbox:{schema}"
    return (
        name if len(name.encode()) <= _LONGEST else f"partbox:{md5(schema.encode(), usedforsecurity=False).hexdigest()}"
    )


def reason_off(wanted: str, *, pooled: bool, sequence: bool = True, prepared: int = 0) -> str | None:
    """The reason why workers do not raise the flag; None if they do.

    `wanted` is the setting. `pooled`: there is a pooler, and no `listen_dsn` to go past it. `sequence`: there is one,
    and the worker's role may set it. `prepared`: how many transactions the server lets be prepared.
    """
    if wanted == "off":
        return "the setting `bell` is off"
    if pooled:
        return "workers are behind a pooler, which passes no notifications on: set `listen_dsn`"
    if not sequence:
        return "there is no sequence `bell` that the worker's role may set (PostgreSQL 14 has none)"
    if prepared and wanted != "on":
        return (
            f"max_prepared_transactions = {prepared}, and a ring makes PREPARE TRANSACTION fail: set `bell = on` if no "
            "transaction that publishes is prepared"
        )
    return None


def flag_duration(nap: float) -> float:
    """Seconds for which somebody who sleeps for `nap` at most raises the flag."""
    return max(MIN_FLAG_TIME, FLAG_PER_NAP * nap)


def flag_seconds_left(ahead: int | None) -> float:
    """Seconds for which the flag is up, which lies so many milliseconds ahead; 0: it is down. None: nobody knows."""
    return ahead / 1_000 if ahead is not None and 1 <= ahead <= MAX_FLAG_AHEAD_MS else 0.0


class FlagChange(Enum):
    """The change to the flag that a look calls for."""

    NOTHING = "nothing"
    RAISE = "raise"
    LOWER = "lower, and call back"


class SleepState(Enum):
    """The states of a worker, as above."""

    AWAKE = "awake"
    RAISED = "raised"
    NAPPING = "napping"


class BellPoll(NamedTuple):
    """One look of a worker that has read all there is: the ids drawn by then, and the seconds for which the flag is up.

    `settled`: no transaction is open that has drawn one of these.
    """

    drawn: int
    settled: bool
    up: float


class SleepControl:
    """The bell as one worker sees it. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self.state = SleepState.AWAKE
        self._drawn: int | None = None
        self._settled = False
        self._changed_at = self._busy_from = 0.0
        self._nap = NAP
        self._up = False  # as far as it knows, from `_up_from` until `_until`
        self._up_from = self._until = 0.0

    def observe(self, now: float, seen: BellPoll | None, *, listens: bool, nap: float = NAP) -> FlagChange:
        """Return the change to make after a look; `seen` None: not all was read, so the worker does not sleep.

        A worker that does not hear rings (`listens` False) stays awake too, but lowers the flag for publishers. `nap`:
        the seconds that it sleeps at most.
        """
        self.state, self._nap = SleepState.AWAKE, nap
        if seen is None:
            self._drawn, self._up = None, False
            return FlagChange.NOTHING
        self._up = self._up and seen.up > 0 and listens
        self._settled = seen.settled
        if self._is_busy(now, seen.drawn) and seen.up:
            return FlagChange.LOWER
        if not listens or not (self._up or now - self._changed_at >= STILL_TIME):
            return FlagChange.NOTHING
        until = max(now + seen.up - MAX_ANSWER_LAG, self._until if self._up else 0.0)
        if now + nap >= until:
            return FlagChange.RAISE
        self._up_until(now, until)
        return FlagChange.NOTHING

    def _is_busy(self, now: float, drawn: int) -> bool:
        """True if the log has moved since the last look, and on and on for `STILL_TIME`."""
        if drawn == self._drawn:
            return False
        if self._drawn is None or now - self._changed_at >= MIN_ID_GAP * (drawn - self._drawn):
            self._busy_from = now
        self._drawn, self._changed_at = drawn, now
        return now - self._busy_from >= STILL_TIME

    def raised(self, now: float, *, was_up: bool) -> None:
        """Note that the flag was raised, for as long as the last look asked for; `now`: just before that was sent.

        `was_up`: it was up before.
        """
        self._up = self._up and was_up and now < self._until
        self._up_until(now, now + flag_duration(self._nap))

    def _up_until(self, now: float, until: float) -> None:
        """Record that the flag is up until then. If it was up before, every publisher that has asked has seen it."""
        if not self._up:
            self._up, self._up_from = True, now
        self._until = until
        self.state = SleepState.NAPPING if now >= self._up_from + HEARD_TIME else SleepState.RAISED

    def lowered(self) -> None:
        """Note that the flag was lowered, by this worker or by one that called `back`."""
        self._up = False
        self.state = SleepState.AWAKE

    def pause(self, now: float) -> float | None:
        """Seconds until the next look at most; None while it is awake."""
        if self.state is SleepState.AWAKE:
            return None
        if self.state is SleepState.RAISED:
            return min(RAISED_POLL, self._up_from + HEARD_TIME - now)
        return self._nap if self._settled else SHORT_NAP


class FlagMemory:
    """The memory of one process that the flag of one database was down; see `NO_ASK_TIME`."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def should_ask(self, now: float) -> bool:
        """True if a statement that is sent `now` is to ask."""
        return now >= self._until

    def note_answer(self, sent: float, rang: bool) -> None:
        """Note the answer to a statement that was sent then; `rang`: the flag was up."""
        if not rang:
            self._until = max(self._until, sent + NO_ASK_TIME)
