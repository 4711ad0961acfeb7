"""Doctor's findings as a metric: who looks, how often, and what is shown when nobody can."""

import threading

import psycopg
import pytest
from planted_records import Planter
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry
from waiting import eventually

from partbox import Outbox
from partbox.observe.health import doctor_rounds
from partbox.observe.health.doctor_rounds import DoctorRounds
from partbox.supervisor.serving import serve_pages

FOUND = {"problem": 2, "warning": 1, "note": 0}


def rounds(*examinations) -> DoctorRounds:
    return DoctorRounds([lambda wait, examine=examine: examine() for examine in examinations])


def test_the_databases_of_a_node_are_examined_one_after_the_other_and_not_again_at_once():
    threads, looks = set(), []

    def look(name):
        threads.add(threading.current_thread())
        assert [each for each in threading.enumerate() if each.name == "partbox-doctor"] == [threading.current_thread()]
        looks.append(name)
        return FOUND | {"note": len(looks)}

    made = rounds(lambda: look("a"), lambda: look("b"))
    assert eventually(lambda: made.read_counts(1)) == FOUND | {"note": 2}
    for _ in range(5):
        assert made.read_counts(0) == FOUND | {"note": 1}
    assert (looks, len(threads)) == (["a", "b"], 1)


def test_a_reader_never_waits_for_an_examination_that_hangs():
    going_on, begun = threading.Event(), threading.Event()

    def look():
        begun.set()
        going_on.wait(120)
        return FOUND

    made = rounds(look)
    assert made.read_counts(0) is None
    assert begun.wait(120)
    assert made.read_counts(0) is None
    going_on.set()
    assert eventually(lambda: made.read_counts(0)) == FOUND


@pytest.mark.parametrize(("error", "logged"), [(psycopg.OperationalError("away"), 0), (KeyError("a bug"), 1)])
def test_a_database_that_cannot_be_examined_shows_nothing_and_does_not_keep_others_from_it(caplog, error, logged):
    def fail():
        raise error

    made = rounds(fail, lambda: FOUND)
    made.read_counts(0)
    assert eventually(lambda: made.read_counts(1)) == FOUND
    assert made.read_counts(0) is None
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == logged


def test_what_is_old_is_not_shown_and_a_closed_node_examines_no_more(monkeypatch):
    monkeypatch.setattr(doctor_rounds, "MIN_PAUSE", 0.0)
    monkeypatch.setattr(doctor_rounds, "SHARE", 0)
    looks = []
    made = rounds(lambda: looks.append(1) or FOUND)
    made.read_counts(0)
    eventually(lambda: made.read_counts(0) and len(looks) > 1)
    made.close()
    monkeypatch.setattr(doctor_rounds, "MAX_AGE", 0.0)
    eventually(lambda: not any(each.name == "partbox-doctor" for each in threading.enumerate()))
    before = len(looks)
    assert made.read_counts(0) is None
    assert not any(each.name == "partbox-doctor" for each in threading.enumerate())
    assert len(looks) == before


class Shown:
    """A display that keeps the collector that it is given."""

    def export_collector(self, prefix, collector):
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(collector)
        return lambda: None


def test_a_node_shows_how_many_problems_doctor_finds_in_its_database(dsn, conn):
    Planter(conn).park("7", blocks=True)
    shown = Shown()
    with serve_pages(None, [Outbox(dsn).supervisor(metrics=True)], displays=[shown]):

        def counts():
            lines = generate_latest(shown.registry).decode().splitlines()
            return dict(each.split(" ") for each in lines if each.startswith("partbox_doctor_problems{"))

        found = eventually(counts)
    assert found['partbox_doctor_problems{severity="problem"}'] == "1.0"
    assert found['partbox_doctor_problems{severity="warning"}'] == "1.0"
    assert set(found) == {f'partbox_doctor_problems{{severity="{each}"}}' for each in ("problem", "warning", "note")}
