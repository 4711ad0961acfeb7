"""The wires between nodes and the database, with a real server at the other end."""

import select
import socket

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from waiting import eventually

from partbox_lab.chaos.network import CUT, HALF, HANG, HOST, PASS, Network


@pytest.fixture
def wire(network):
    return network.wire()


@pytest.fixture
def through(dsn, wire):
    """Connects over the wire, with some patience."""

    def connect():
        target = make_conninfo(dsn, host=HOST, hostaddr=HOST, port=str(wire.port), connect_timeout=2)
        return psycopg.connect(target, autocommit=True)

    return connect


def answer(conn):
    """The first field of what the server says to the query that is under way; None if it says no rows."""
    eventually(lambda: conn.pgconn.consume_input() or not conn.pgconn.is_busy())
    first = conn.pgconn.get_result()
    assert conn.pgconn.get_result() is None
    return first.get_value(0, 0)


def test_a_wire_carries_everything_both_ways(through):
    with through() as conn:
        text = "x" * 1_000_000
        assert conn.execute("select %s || '!'", [text]).fetchone() == (text + "!",)


def test_a_cut_wire_ends_its_connections_and_accepts_none_until_it_is_mended(network, wire, through):
    with through() as conn:
        network.set(wire, CUT)
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        through()
    network.set(wire, PASS)
    with through() as conn:
        assert conn.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("state", [HANG, HALF])
def test_a_hanging_wire_carries_nothing_and_works_again_afterwards(network, wire, through, state):
    with through() as conn:
        network.set(wire, state)
        conn.pgconn.send_query(b"select 1")
        assert select.select([conn.fileno()], [], [], 0.3) == ([], [], []), "nothing comes"
        network.set(wire, PASS)
        assert answer(conn) == b"1"


def test_a_half_open_wire_carries_requests_and_no_answers(dsn, network, wire, through):
    with through() as conn, psycopg.connect(dsn, autocommit=True) as near:
        conn.execute("create table said (word text)")
        network.set(wire, HALF)
        conn.pgconn.send_query(b"insert into said values ('heard')")
        eventually(lambda: near.execute("select word from said").fetchall() == [("heard",)])
        network.set(wire, PASS)
        answer(conn)


def test_a_stopping_network_closes_connections_that_are_just_arriving(collect):
    """Left open, the garbage collector would warn of them, which fails this test."""
    with socket.create_server((HOST, 0)) as target:
        for _ in range(10):
            network = Network(*target.getsockname())
            network.start()
            wire = network.wire()
            coming = [socket.socket() for _ in range(3)]
            for each in coming:
                each.setblocking(False)
                each.connect_ex((HOST, wire.port))
            network.stop()
            for each in coming:
                each.close()
    collect()


def test_a_stopping_network_gives_up_connections_that_are_not_established_yet(collect):
    with socket.socket() as target, socket.socket() as first, socket.socket() as second:
        target.bind((HOST, 0))
        target.listen(0)  # for one: of those after it the kernel drops what they send
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(target.getsockname())
        network = Network(*target.getsockname())
        network.start()
        with socket.create_connection((HOST, network.wire().port)):
            network.stop()
        collect()
