"""`partbox top`: shows a subscription live on the whole terminal."""

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import DatabaseOptions, Subscription, with_option_groups
from partbox.cli.shell.output import make_console
from partbox.cli.shell.stopping import until_stopped
from partbox.cli.shell.watching import ClusterSample, Every, iter_samples, parse_interval
from partbox.cli.views.top_view import TopFrame, render_top
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.operator import blocked
from partbox.errors import PartboxError
from partbox.platform import IS_WINDOWS
from partbox.terminal.cluster_view import make_full_screen
from partbox.terminal.roster import Roster

QUERY_TIMEOUT = 30.0  # seconds that a read may take
BLOCKED = 50  # aggregates that are read; as many are shown as fit


@with_option_groups
def top(*, every: Every = "1s", subscription: Subscription = "default", outbox: DatabaseOptions) -> None:
    """Show a subscription live on the whole terminal: partitions by owner, processes, rates, blocked aggregates.

    Each process and its partitions have a letter and a colour (NO_COLOR leaves the letters). A partition that has just
    moved has its colours swapped. A partition without an owner is a dot. q quits.

    Example: partbox top --dsn postgresql://localhost/shop
    """
    pause = parse_interval(every)
    out = make_console()
    if not sys.stdout.isatty() or out.is_dumb_terminal:
        raise PartboxError("top needs a terminal to draw on: `partbox status --watch` works without a terminal")
    settings = outbox.load_settings()
    overview = CachedOverview(settings, lambda: build_dsn(settings), patience=QUERY_TIMEOUT, fresh=min(1.0, pause))
    with until_stopped(), closing(overview) as overview_cache:
        overview_cache.list_partitions(subscription)
        # An error is raised here before anything is drawn.
        overview_cache.read_overview().cluster(subscription)
        show = _FrameBuilder(overview_cache)
        with read_keys() as pressed, make_full_screen(out) as live:
            for sample in iter_samples(overview_cache, subscription, lambda: _wait_for_quit(pressed, pause)):
                live.update(render_top(show.build_frame(sample), *out.size), refresh=True)


class Keys:
    """A reader of the keys that are pressed at a terminal, without a need for Enter.

    If `terminal` is None, no key ever arrives."""

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal

    def wait_for_key(self, seconds: float) -> str:
        """Return the first keys that are pressed within some seconds, or "" if there are none."""
        if self._terminal is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(self._terminal, 64)
        # An empty read means that the terminal was hung up.
        if not typed:
            self._terminal = None
        return typed.decode(errors="replace")


@contextmanager
def read_keys() -> Iterator[Keys]:
    """Read keys from standard input without echo, and restore the terminal afterwards."""
    if IS_WINDOWS or not sys.stdin.isatty():
        yield Keys(None)
        return
    # Windows has no such module.
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield Keys(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _wait_for_quit(pressed: Keys, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if set(pressed.wait_for_key(left)) & {*"qQ"}:
            return True
    return False


class _FrameBuilder:
    def __init__(self, overview_cache: CachedOverview) -> None:
        self._overview_cache = overview_cache
        self._roster = Roster()
        self._owners: tuple[object, ...] = ()
        self._moved: frozenset[int] = frozenset()
        self._blocked: list[blocked.BlockedKey] = []

    def build_frame(self, sample: ClusterSample) -> TopFrame:
        cluster = sample.cluster
        owners = tuple(each.owner for each in cluster.partitions)
        self._roster.add_processes(each.instance_id for each in cluster.instances)
        if sample.problem is None:
            # There are no previous owners for the first sample, so nothing has moved.
            pairs = enumerate(zip(self._owners, owners, strict=False))
            self._moved = frozenset(number for number, (old, new) in pairs if old != new)
            where = cluster.schema, cluster.subscription, BLOCKED
            # If this fails, the next sample reports the problem.
            with suppress(psycopg.Error, PartboxError):
                keys = (
                    self._overview_cache.run_read(lambda conn: blocked.list_keys(conn, *where))
                    if cluster.blocked_keys
                    else []
                )
                self._blocked = keys
        self._owners = owners
        return TopFrame(sample, self._roster, self._moved, self._blocked)
