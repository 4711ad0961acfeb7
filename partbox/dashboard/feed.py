"""One reader of the database for all viewers of the page, once a second and only while somebody watches."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Any

import psycopg

from partbox.dashboard import frame
from partbox.dashboard.alarms import CAUSES, find_alarms, find_remote_problems
from partbox.dashboard.background_calls import run_in_background
from partbox.dashboard.frame import ProcessLabels, make_process_labels
from partbox.dashboard.history import DayOfLags, History, PageNews
from partbox.dashboard.page_text import cut_text, format_error
from partbox.dashboard.problems import Problem, merge_alike, select_problems
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.inspect.stats import Cluster, Overview
from partbox.doctor.doctor import Report
from partbox.errors import PartboxError
from partbox.observe.health.health import Siblings
from partbox.observe.logs.log_event import log_event
from partbox.operations.stats import RateMeter, Rates

log = logging.getLogger("partbox.http")

# Seconds between two refreshes: longer than a second, because the cache returns a younger overview again.
REFRESH_INTERVAL = 1.02

# Seconds from the end of one examination to the next, but at least `SHARE` times the last one's duration.
EXAMINE_PAUSE = 15.0
SHARE = 10

Plain = dict[str, Any]


@dataclass(slots=True)
class _SubscriptionView:
    labels: ProcessLabels
    news: PageNews = field(default_factory=PageNews)
    history: History = field(default_factory=History)
    owned_at: datetime | None = None
    alarms: list[Problem] = field(default_factory=list)
    remote_problems: list[Problem] = field(default_factory=list)
    frame_data: Plain = field(default_factory=dict)
    is_listed: bool = True

    def update_view(self, at: datetime, cluster: Cluster, rates: Rates | None) -> None:
        labels = self.labels(cluster.instances)
        self.news.note_changes(cluster, labels, at)
        if not cluster.unowned or self.owned_at is None:
            self.owned_at = at
        point = self.history.add_point(at, cluster, rates)
        self.alarms = list(find_alarms(cluster, (at - self.owned_at).total_seconds(), at))
        self.remote_problems = list(find_remote_problems(cluster, self.alarms))
        self.is_listed = cluster.unlisted is None
        self.frame_data = frame.build_subscription(cluster, labels, point, self.news.items)


class Diagnosis:
    """The newest results of doctor's checks of the database, which all viewers of a dashboard share.

    `report` is the newest report, None before the first. `error` is the reason why the last examination failed, or
    None."""

    def __init__(self, examine: Callable[[], Report], clock: Callable[[], float] = time.monotonic) -> None:
        self._examine = examine
        self._clock = clock
        self._next_due = clock()
        self._running: asyncio.Task[None] | None = None
        self.report: Report | None = None
        self.error: str | None = None

    def begin_if_due(self) -> None:
        """Start the next run of doctor's checks, if it is due and none is running."""
        # This is called in the event loop while the page is watched.
        # Only one examination runs at a time.
        if (self._running is None or self._running.done()) and self._clock() >= self._next_due:
            self._running = asyncio.create_task(self._run_examination())

    def to_plain(self) -> Plain:
        at, causes = (self.report.at.isoformat(), len(self.report.checks)) if self.report else (None, 0)
        return {"at": at, "causes": causes, "error": self.error}

    async def _run_examination(self) -> None:
        began = self._clock()
        try:
            self.report, self.error = await run_in_background(self._examine), None
        except Exception as error:
            # A bug in a check must not break the page.
            if not isinstance(error, psycopg.Error | PartboxError):
                log_event(
                    log, "loop_error", "doctor's checks failed for the live page: %s", error, trace=error, loop="page"
                )
            self.error = format_error(error)
        self._next_due = self._clock() + max(EXAMINE_PAUSE, SHARE * (self._clock() - began))


class Feed:
    """A source of the data that a dashboard shows, refreshed from the database while somebody watches.

    The data of one page is called a frame. A feed is for one event loop. While `keep_refreshing` is entered,
    `build_frame` changes after each `await_refresh`. Without `diagnosis`, doctor does not run."""

    def __init__(
        self,
        overview_cache: CachedOverview,
        schema: str,
        labels: Callable[[], ProcessLabels] = make_process_labels,
        diagnosis: Diagnosis | None = None,
        siblings: Siblings = tuple,
        identity: Plain | None = None,
        lags: DayOfLags | None = None,
    ) -> None:
        self._overview_cache = overview_cache
        self._siblings = siblings
        self._identity = {"schema": cut_text(schema), "version": version("partbox")} | (identity or {})
        self.lags = lags or DayOfLags()
        self._diagnosis = diagnosis
        self._labels = labels
        self._pace = RateMeter()
        self._views: dict[str, _SubscriptionView] = {}
        self._overview: Overview | None = None
        self._refreshed_at: float | None = None
        self._error: str | None = None
        self._watchers = 0
        self._reader: asyncio.Task[None] | None = None
        self._refreshed = asyncio.Event()

    @contextmanager
    def keep_refreshing(self) -> Iterator[None]:
        """Read the database regularly for the dashboard's viewers as long as this context is entered."""
        self._watchers += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._refresh_while_watched())
        try:
            yield
        finally:
            self._watchers -= 1

    @property
    def is_fresh(self) -> bool:
        # If the data was not refreshed just now, viewers wait for the next refresh.
        return self._refreshed_at is not None and time.monotonic() - self._refreshed_at < 2 * REFRESH_INTERVAL

    async def await_refresh(self, stopping: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._refreshed, stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def build_frame(self, subscription: str | None, *, history: bool) -> Plain:
        """Return all data that the dashboard shows about a subscription."""
        # The entry `subscription` is null if no subscription has that name.
        shown: Plain = self._identity | {"error": self._error}
        shown |= {"database": None, "at": None, "subscriptions": [], "subscription_count": 0, "subscription": None}
        shown |= {"doctor": self._diagnosis and self._diagnosis.to_plain(), "troubles": []}
        shown |= {"databases": [asdict(each) for each in self._siblings()]}
        if self._overview is None:
            return shown
        shown |= {"database": cut_text(self._overview.database), "at": self._overview.at.isoformat()}
        names = list(self._views)
        name = subscription or ("default" if "default" in names or not names else names[0])
        view = self._views.get(name)
        shown |= frame.list_selector_entries(self._overview, name)
        shown |= {"troubles": self._list_problems(name, view.alarms if view else [])}
        if view is None:
            return shown
        if not view.is_listed:
            self._overview_cache.list_partitions(name)
        history_part = {"history": [tuple(point) for point in view.history.points]} if history else {}
        return shown | {"subscription": view.frame_data} | history_part

    def _list_problems(self, subscription: str, alarms: list[Problem]) -> list[Plain]:
        report = self._diagnosis.report if self._diagnosis else None
        findings = report.findings if report else ()
        others = {name: view for name, view in self._views.items() if name != subscription}
        most = {name: view.history.points[-1].open for name, view in others.items()}
        remote = merge_alike((each for view in others.values() for each in view.remote_problems), most)
        return [each.to_plain() for each in select_problems(alarms, findings, subscription, CAUSES, remote)]

    async def _refresh_while_watched(self) -> None:
        while self._watchers:
            if self._diagnosis is not None:
                self._diagnosis.begin_if_due()
            await self._refresh_views()
            next_refresh, self._refreshed = self._refreshed, asyncio.Event()
            next_refresh.set()
            await asyncio.sleep(REFRESH_INTERVAL)

    async def _refresh_views(self) -> None:
        try:
            overview = await run_in_background(self._overview_cache.read_overview)
            if overview is not self._overview:
                self._update_views(overview)
            self._error = None
        except Exception as error:
            # A bug of partbox must not make viewers wait for ever.
            if not isinstance(error, psycopg.Error | PartboxError):
                log_event(log, "loop_error", "the live page cannot be refreshed: %s", error, trace=error, loop="page")
            self._error = format_error(error)
        self._refreshed_at = time.monotonic()

    def _update_views(self, overview: Overview) -> None:
        self._overview = overview
        self.lags.record_lags(overview)
        self._pace.add_overview(overview)
        for cluster in overview.clusters:
            name = cluster.subscription
            view = self._views.setdefault(name, _SubscriptionView(self._labels()))
            view.update_view(overview.at, cluster, self._pace.compute_rates(name))
        for gone in self._views.keys() - {cluster.subscription for cluster in overview.clusters}:
            del self._views[gone]
