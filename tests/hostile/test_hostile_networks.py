"""Networks that hang, trickle, delay, cut and reset: what is published is delivered once, and in order."""

import pytest
from line import CUT, DELAY, GOOD, HALF, HANG, RST, TRICKLE, Line
from variants import named

LEASE = 2.0
BRIEF, BEYOND = 0.3, LEASE + 1.0  # seconds that a line is bad


@pytest.fixture
def line(dsn):
    made = Line(dsn)
    yield made
    made.close()


@pytest.fixture
def far_house(open_house, line):
    """Its worker reaches the database over the line; its publishers, and those who look, are near."""
    return open_house(source=lambda: line.dsn, lease=LEASE, heartbeat=0.3)


BAD = {
    "trickles": (TRICKLE, BRIEF),
    "is slow": (DELAY, BEYOND),
    "hangs for a moment": (HANG, BRIEF),
    "gives no answers for a moment": (HALF, BRIEF),
    "is cut": (CUT, 0.0),
    "is cut for a while": (CUT, BRIEF),
    "is reset": (RST, 0.0),
}


SHORT = [name for name, (_, seconds) in BAD.items() if seconds <= BRIEF]
LONG = [name for name in BAD if name not in SHORT]


@pytest.mark.parametrize("names", [SHORT, LONG], ids=["for a moment", "beyond its lease"])
def test_a_network_that_is_bad_for_a_while_makes_no_event_lost_reordered_or_repeated(far_house, line, names, waits):
    with far_house.working() as worker:
        far_house.round()
        far_house.settle(worker)
        for name in names:
            state, seconds = BAD[name]
            with named(name):
                for _ in range(2):
                    line.be(state)
                    far_house.round()
                    waits(seconds)
                    line.be(GOOD)
                    far_house.round()
                far_house.settle(worker)
        far_house.look()
    far_house.judge()


def test_connections_that_hang_forever_are_given_up_and_no_event_is_lost_or_repeated(far_house, line):
    with far_house.working() as worker:
        far_house.round()
        far_house.settle(worker)
        assert line.hang() >= 2
        far_house.round()
        far_house.settle(worker)
        far_house.look()
    far_house.judge()


def test_a_worker_whose_database_does_not_answer_at_its_stop_ends_in_time(open_house, line):
    house = open_house(source=lambda: line.dsn, lease=LEASE, heartbeat=0.3, drain_timeout=1)
    worker = house.outbox.worker()
    worker.start()
    house.round()
    house.settle(worker)
    line.be(HANG)
    worker.stop()
    line.be(GOOD)
