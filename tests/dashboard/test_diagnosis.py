"""Doctor's examinations for the page: how often, and for whom."""

import asyncio
import threading
from datetime import UTC, datetime

import psycopg

from partbox.dashboard.feed import EXAMINE_PAUSE, SHARE, Diagnosis
from partbox.doctor.doctor import Report

REPORT = Report("partbox", datetime(2026, 1, 31, tzinfo=UTC), True, (), ("dead",))


class Doctor:
    """Counts its examinations; each takes `takes` seconds of the clock, and ends when it is let go."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes = 0.0
        self.examinations = 0
        self.fails: Exception | None = None
        self.let_go = threading.Event()
        self.let_go.set()
        self.diagnosis = Diagnosis(self.examine, lambda: self.now)

    def examine(self) -> Report:
        self.examinations += 1
        assert self.let_go.wait(120)
        self.now += self.takes
        if self.fails is not None:
            raise self.fails
        return REPORT

    async def begin_if_due(self, seconds: float = 0.0) -> int:
        """Watch, this much later; return the number of examinations so far."""
        self.now += seconds
        self.diagnosis.begin_if_due()
        await self.through()
        return self.examinations

    async def through(self) -> None:
        if self.diagnosis._running is not None:
            await self.diagnosis._running


async def test_doctor_examines_when_somebody_watches_and_not_again_for_some_seconds():
    doctor = Doctor()
    assert doctor.diagnosis.report is None
    assert await doctor.begin_if_due() == 1
    assert doctor.diagnosis.report is REPORT
    assert await doctor.begin_if_due(EXAMINE_PAUSE - 0.1) == 1
    assert await doctor.begin_if_due(0.2) == 2


async def test_many_who_watch_get_one_examination():
    doctor = Doctor()
    doctor.let_go.clear()
    for _ in range(50):
        doctor.diagnosis.begin_if_due()
    await asyncio.sleep(0)
    for _ in range(50):
        doctor.diagnosis.begin_if_due()
    doctor.let_go.set()
    await doctor.through()
    assert doctor.examinations == 1


async def test_an_examination_that_takes_long_is_repeated_more_rarely():
    doctor = Doctor()
    doctor.takes = 2 * EXAMINE_PAUSE
    await doctor.begin_if_due()
    assert await doctor.begin_if_due(SHARE * doctor.takes - 0.1) == 1
    assert await doctor.begin_if_due(0.2) == 2


async def test_a_failed_examination_is_reported_without_secrets_and_the_last_report_stays(caplog):
    doctor = Doctor()
    await doctor.begin_if_due()
    doctor.fails = psycopg.OperationalError("connection to postgresql://shop:hunter2@db failed\nmore")
    await doctor.begin_if_due(EXAMINE_PAUSE)
    assert doctor.diagnosis.error == "connection to postgresql://shop:***@db failed"
    assert doctor.diagnosis.report is REPORT
    assert not caplog.records
    doctor.fails = KeyError("of ours")
    await doctor.begin_if_due(EXAMINE_PAUSE)
    assert "of ours" in caplog.text
    doctor.fails = None
    await doctor.begin_if_due(EXAMINE_PAUSE)
    assert doctor.diagnosis.error is None
