"""The one reader for all who watch."""

import asyncio
from dataclasses import replace

import psycopg
import pytest
from sights import ADA, BEGAN, BOB, cluster, overview

import partbox
from partbox.dashboard import feed
from partbox.dashboard.feed import Diagnosis, Feed
from partbox.doctor.case import Finding, Severity
from partbox.doctor.doctor import Report


class CachedOverview:
    """Gives what it is told to, and counts; waits to be let go on."""

    def __init__(self) -> None:
        self.looks = 0
        self.next = overview()

    def read_overview(self):
        self.looks += 1
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


@pytest.fixture
def overview_cache(monkeypatch) -> CachedOverview:
    monkeypatch.setattr(feed, "REFRESH_INTERVAL", 0.01)
    return CachedOverview()


async def keep_refreshing(feed: Feed, turns: int, name: str | None = None) -> dict:
    stopping = asyncio.Event()
    with feed.keep_refreshing():
        for _ in range(turns):
            await feed.await_refresh(stopping)
        return feed.build_frame(name, history=True)


async def test_many_watchers_share_one_database_query_and_without_watchers_there_is_none(overview_cache):
    feed = Feed(overview_cache, "partbox")
    await asyncio.gather(*(keep_refreshing(feed, 5) for _ in range(20)))
    assert overview_cache.looks <= 7
    looks = overview_cache.looks
    await asyncio.sleep(0.1)
    assert overview_cache.looks <= looks + 1
    await keep_refreshing(feed, 1)
    assert overview_cache.looks > looks


async def test_the_same_database_snapshot_shown_twice_is_one_point_of_the_charts(overview_cache):
    feed = Feed(overview_cache, "partbox")
    assert len((await keep_refreshing(feed, 5))["history"]) == 1
    overview_cache.next = overview(seconds=1)
    assert len((await keep_refreshing(feed, 5))["history"]) == 2


async def test_an_error_is_said_and_the_last_state_stays(overview_cache):
    feed = Feed(overview_cache, "partbox")
    await keep_refreshing(feed, 2)
    overview_cache.next = psycopg.OperationalError("connection to postgresql://shop:hunter2@db failed\nmore")
    frame = await keep_refreshing(feed, 2)
    assert frame["error"] == "connection to postgresql://shop:***@db failed"
    assert frame["subscription"]["name"] == "default"
    overview_cache.next = overview(seconds=2)
    assert (await keep_refreshing(feed, 2))["error"] is None


async def test_an_unexpected_error_in_a_refresh_leaves_no_watcher_waiting(overview_cache, caplog):
    overview_cache.next = KeyError("of ours")
    assert "of ours" in (await keep_refreshing(Feed(overview_cache, "partbox"), 2))["error"]
    assert "cannot be refreshed" in caplog.text


async def test_a_watcher_that_stops_does_not_wait_for_the_next_refresh(overview_cache, monkeypatch):
    monkeypatch.setattr(feed, "REFRESH_INTERVAL", 60.0)
    watching, stopping = Feed(overview_cache, "partbox"), asyncio.Event()
    with watching.keep_refreshing():
        await watching.await_refresh(stopping)
        asyncio.get_running_loop().call_later(0.01, stopping.set)
        await asyncio.wait_for(watching.await_refresh(stopping), 30)
    watching._reader.cancel()


async def test_owners_are_given_as_positions_in_the_list_of_processes(overview_cache):
    gone = cluster([ADA, BOB, None] + [BOB] * 253)
    overview_cache.next = overview(replace(gone, instances=gone.instances[:1]))
    frame = await keep_refreshing(Feed(overview_cache, "partbox"), 2)
    assert frame["subscription"]["owners"][:3] == [0, -2, -1]


async def test_a_subscription_that_was_dropped_is_forgotten(overview_cache):
    feed = Feed(overview_cache, "partbox")
    overview_cache.next = overview(cluster(), cluster(subscription="audit"))
    assert (await keep_refreshing(feed, 2, "audit"))["subscription"]["name"] == "audit"
    overview_cache.next = overview(cluster(), seconds=1)
    # A look that had begun before may still tell of it.
    assert (await keep_refreshing(feed, 3, "audit"))["subscription"] is None


async def test_doctor_examines_while_somebody_watches_and_what_it_finds_is_told(overview_cache):
    found = Finding(Severity.PROBLEM, "2 partitions braked", subscription="default", cause="braked")
    diagnosis = Diagnosis(lambda: Report("partbox", BEGAN, False, (found,), ("braked",)))
    feed = Feed(overview_cache, "partbox", diagnosis=diagnosis)
    before = feed.build_frame(None, history=False)
    assert (before["doctor"], before["troubles"]) == ({"at": None, "causes": 0, "error": None}, [])
    await asyncio.sleep(0.05)
    assert diagnosis.report is None

    async def told() -> dict:
        while not (frame := await keep_refreshing(feed, 1))["troubles"]:
            await asyncio.sleep(0.01)
        return frame

    frame = await asyncio.wait_for(told(), 30)
    assert [(each["level"], each["name"]) for each in frame["troubles"]] == [("bad", "braked")]
    assert frame["doctor"] == {"at": BEGAN.isoformat(), "causes": 1, "error": None}
    assert (frame["schema"], frame["version"]) == ("partbox", partbox.__version__)
