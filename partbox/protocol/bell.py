"""The bell: idle workers sleep, and publishers wake them by a notification only while some worker sleeps.

The flag is a sequence in the database. The value of the sequence is the time, in milliseconds, until which some worker
sleeps. A worker raises the flag before it sleeps. A publisher reads the flag after it has drawn its ids, and notifies
("rings") while the flag lies ahead of the server's clock. A worker is in one of three states:

    AWAKE      no publisher knows that the worker listens, so it polls continually
    RAISED     the flag is up, but a publisher that read it earlier may commit now: poll for `HEARD_TIME`
    NAPPING    the worker has polled since then and has read everything: sleep until a ring, at most for a nap

    AWAKE ──> RAISED       this or another worker raised the flag, which was down before
    AWAKE ──> NAPPING      the flag has been up for `HEARD_TIME`
    RAISED ──> NAPPING     the worker has polled once more, `HEARD_TIME` after the flag was raised
    any ──> AWAKE          a poll did not read everything, or the log moves on, or the flag is down

Correctness never depends on a ring: a lost ring delays events by the rest of a nap. A ring cannot make anything fail
either: nobody raises the flag or rings while the server's notification queue is filling up (`queue_has_room` in
`sql/queries/bell.sql`). Each rule that a comment below gives was added after a test run failed without it."""

from enum import Enum
from hashlib import md5
from typing import NamedTuple

# Seconds without a new id after which a worker raises the flag, and seconds of fast ids after which it lowers the flag.
STILL_TIME = 0.005
# Seconds between ids. If ids come faster than this, a ring for each of them costs too much.
MIN_ID_GAP = 0.002
# Seconds for which a worker stays awake after the flag was raised, and seconds between its polls during that time.
HEARD_TIME = 0.040
RAISED_POLL = 0.003
# Seconds for which a publisher believes that nobody sleeps. An answer takes less time than this even under load.
NO_ASK_TIME = 0.020
# Seconds. A nap can be as long as `protocol.lease.LONGEST`. A nap is short while an open transaction may have read the
# flag before it was raised.
NAP = 0.250
SHORT_NAP = 0.040
# Seconds for which a worker raises the flag. Raising it costs a statement and a transaction id, so it stays up for many
# naps of several workers, and for longer than the longest nap (`intervals.LONGEST_TICK`).
FLAG_TIME = 2.400
# A flag that is further ahead was not set by a worker.
MAX_FLAG_AHEAD_MS = 3_000
# Seconds that the answer of a poll may have been under way.
MAX_ANSWER_LAG = 0.050

RING_ALL = "*"
RING_BACK = "back"
# Followed by the name of a subscription. Sent when its plan changed, or when a process other than the owner changed its
# parked rows.
RING_CHANGED = "changed"

_LONGEST = 63  # bytes of a channel name


def build_channel_name(schema: str) -> str:
    """Return the name of the PostgreSQL notification channel for a schema."""
    return _shorten_name(schema, _LONGEST)


def build_type_channels_stem(schema: str) -> str:
    """Return the beginning of the names of the channels for workers whose subscription wants some event types.

    A number from 0 to 15, the hash of the event type, follows for rings about one type, and `*` for all other
    notifications."""
    return f"{_shorten_name(schema, _LONGEST - 3)}/"


def _shorten_name(schema: str, most: int) -> str:
    # A name that is too long for PostgreSQL is hashed.
    name = f"partbox:{schema}"
    return name if len(name.encode()) <= most else f"partbox:{md5(schema.encode(), usedforsecurity=False).hexdigest()}"


def find_reason_off(wanted: str, *, pooled: bool, sequence: bool = True, prepared: int = 0) -> str | None:
    """Return the reason why publishers cannot notify sleeping workers, or None if they can."""
    # With a reason, the workers do not raise the bell's flag. `wanted` is the setting `bell`. `pooled` means that
    # connections pass through a pooler and no `listen_dsn` bypasses the pooler. `sequence` means that the flag's
    # sequence exists and the worker's role may set it. `prepared` is the server's `max_prepared_transactions`.
    if wanted == "off":
        return "the setting `bell` is off"
    if pooled:
        return "workers are behind a pooler, which passes no notifications on: set `listen_dsn`"
    if not sequence:
        return "the worker's role may not set the sequence `bell`"
    if prepared and wanted != "on":
        return (
            f"max_prepared_transactions = {prepared}, and a wake-up notification makes PREPARE TRANSACTION fail: set "
            "`bell = on` if no transaction that publishes is prepared"
        )
    return None


def flag_seconds_left(ahead: int | None) -> float:
    """Return the number of seconds for which publishers still notify sleeping workers, or 0 if publishers do not."""
    # That is how long the mark "a worker sleeps" stays set.
    # A mark that lies more than 3,000 ms ahead counts as not set. Otherwise a server clock that was set back would
    # leave the mark set for ever.
    # The mark is the bell's flag. `ahead` is the flag's lead over the server's clock in milliseconds, or None if the
    # flag could not be read.
    return ahead / 1_000 if ahead is not None and 1 <= ahead <= MAX_FLAG_AHEAD_MS else 0.0


class FlagChange(Enum):
    """The choice of a worker after a poll: ask publishers for notifications, tell them to stop, or neither."""

    # The worker sets or clears the mark "a worker sleeps" in the database, or leaves it. The mark is the bell's flag,
    # which publishers read.

    NOTHING = "nothing"
    RAISE = "raise"
    LOWER = "lower, and call back"


class SleepState(Enum):
    """The state of a worker process between two polls: awake, about to sleep, or asleep."""

    # A worker about to sleep has raised the bell's flag, the mark by which it asks publishers for notifications, and
    # still polls.

    AWAKE = "awake"
    RAISED = "raised"
    NAPPING = "napping"


class BellPoll(NamedTuple):
    """The facts from a complete poll by which a worker decides whether to sleep."""

    # `drawn_id` is the last record id drawn, and `flag_seconds` the seconds for which the bell's flag is still up.
    # `is_settled` is True if no open transaction has drawn an id up to `drawn_id`.

    drawn_id: int
    is_settled: bool
    flag_seconds: float


class SleepControl:
    """A state machine that decides how long a worker sleeps, and when publishers have to wake it. All times are seconds
    of any monotonic clock."""

    def __init__(self) -> None:
        self.state = SleepState.AWAKE
        self._drawn: int | None = None
        self._is_settled = False
        self._changed_at = self._busy_from = 0.0
        self._nap = NAP
        # The flag as far as this worker knows: up since `_up_from` until `_until`.
        self._is_flag_up = False
        self._up_from = self._until = 0.0

    def observe(self, now: float, seen: BellPoll | None, *, listens: bool, nap: float = NAP) -> FlagChange:
        """Decide after a poll whether the worker may sleep, and whether to ask publishers for notifications."""
        # The result says how to change the mark "a worker sleeps", the bell's flag.
        # A worker raises the flag when the log has stood still for `STILL_TIME`, unless another worker has raised it
        # for long enough. While the flag stays up, every new event causes a ring. A worker that has read the new events
        # therefore goes back to sleep at once. A worker never lowers the flag because it woke up. Another worker may
        # rely on the flag by then, and would sleep without being called. If the log moves on for `STILL_TIME`, with
        # less than `MIN_ID_GAP` between ids, a worker lowers the flag and notifies `back`, and every sleeping worker
        # polls. Without this rule, one idle worker would cost busy publishers two thirds of their rate.
        # The worker stays awake if the poll did not read everything (`seen` is None) or if it hears no notifications
        # (`listens` is False). Without notifications, it still lowers the bell's flag for publishers. `nap` is the
        # longest sleep in seconds.
        self.state, self._nap = SleepState.AWAKE, nap
        if seen is None:
            self._drawn, self._is_flag_up = None, False
            return FlagChange.NOTHING
        # The flag counts as up without a gap only while every poll finds it up.
        self._is_flag_up = self._is_flag_up and seen.flag_seconds > 0 and listens
        self._is_settled = seen.is_settled
        if self._is_busy(now, seen.drawn_id) and seen.flag_seconds:
            return FlagChange.LOWER
        if not listens or not (self._is_flag_up or now - self._changed_at >= STILL_TIME):
            return FlagChange.NOTHING
        until = max(now + seen.flag_seconds - MAX_ANSWER_LAG, self._until if self._is_flag_up else 0.0)
        if now + nap >= until:
            return FlagChange.RAISE
        self._note_up_until(now, until)
        return FlagChange.NOTHING

    def _is_busy(self, now: float, drawn: int) -> bool:
        # The result is True if record ids have been drawn in quick succession for `STILL_TIME` seconds, up to this
        # poll.
        if drawn == self._drawn:
            return False
        if self._drawn is None or now - self._changed_at >= MIN_ID_GAP * (drawn - self._drawn):
            self._busy_from = now
        self._drawn, self._changed_at = drawn, now
        return now - self._busy_from >= STILL_TIME

    def note_raised(self, now: float, *, was_up: bool) -> None:
        """Record that the worker has asked publishers for notifications, because it is about to sleep."""
        # The worker has marked itself in the database as asleep.
        # The mark is the bell's flag. `now` is the time just before the worker sent the statement, and `was_up` is True
        # if the flag was up before the statement.
        # The flag was up without a gap only if this worker knew it to be up until now, and the statement found it up
        # too.
        self._is_flag_up = self._is_flag_up and was_up and now < self._until
        self._note_up_until(now, now + FLAG_TIME)

    def _note_up_until(self, now: float, until: float) -> None:
        # If the flag was up before, every publisher that read it since `_up_from` found it up, so the worker need not
        # wait for `HEARD_TIME` again.
        if not self._is_flag_up:
            self._is_flag_up, self._up_from = True, now
        self._until = until
        self.state = SleepState.NAPPING if now >= self._up_from + HEARD_TIME else SleepState.RAISED

    def note_lowered(self) -> None:
        """Stay awake, because publishers no longer notify sleeping workers."""
        # The mark "a worker sleeps" was cleared.
        # This worker lowered the bell's flag, or another worker did so and sent the notification `back`.
        self._is_flag_up = False
        self.state = SleepState.AWAKE

    def compute_pause(self, now: float) -> float | None:
        """Return the longest time in seconds to sleep before the next poll, or None while the worker is awake."""
        # A transaction may read the flag before it is raised and commit after the last poll. Its ids are drawn already,
        # so the floor of the page is below the value of the id sequence, and the poll was not settled. The nap is then
        # only `SHORT_NAP`.
        if self.state is SleepState.AWAKE:
            return None
        if self.state is SleepState.RAISED:
            return min(RAISED_POLL, self._up_from + HEARD_TIME - now)
        return self._nap if self._is_settled else SHORT_NAP


class FlagMemory:
    """A publisher's memory that no worker sleeps, which saves further questions to the database."""

    # The memory belongs to one process, and holds for one database and for `NO_ASK_TIME`.

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def should_ask(self, now: float) -> bool:
        """Return True if a publish has to ask the database again whether a worker sleeps."""
        # The publish statement is sent at the time `now`. It has to read the bell's flag because the last answer "down"
        # is too old.
        return now >= self._until

    def note_answer(self, sent: float, rang: bool) -> None:
        """Remember for a short time that no worker sleeps, unless the publish notified a sleeping worker (`rang`)."""
        # `sent` is the time of the statement.
        # A publisher that found the flag down does not read it again for `NO_ASK_TIME`, counted from the time at which
        # it sent that statement. `NO_ASK_TIME` is shorter than `HEARD_TIME`. A publisher never remembers that it rang,
        # because a rollback to a savepoint takes the notification back.
        # The statement found the bell's flag up (`rang`) or down.
        if not rang:
            self._until = max(self._until, sent + NO_ASK_TIME)
