"""By which names metrics and health checks may be asked for: none that another site can have point here."""

import http.client
from urllib.parse import urlsplit

import pytest
from overviews import watched
from starlette.applications import Starlette

from partbox.http import address
from partbox.http.address import AllowedHosts, build_allowed_hosts
from partbox.http.routes import build_routes
from partbox.http.server import HttpServer

SAFE = [
    *("127.0.0.1", "127.0.0.1:9464", "10.244.3.17:9464", "[::1]:9464", "[fd00::12]", "192.168.0.7"),
    *("localhost", "LOCALHOST:9464", "localhost.", "node-1:9464", "outbox", "printer.local", ""),
    *("worker.shop.svc:9464", "worker.shop.svc.cluster.local:9464", "host.docker.internal"),
]
FOREIGN = [
    *("evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example", "127.1.example", "@"),
    *("worker.shop", "worker.shop:9464", "evil.example.", "svc.evil.example", "evil.examplelocalhost.com"),
    *("user@evil.example", "evil.example/..", "[::1", "[evil.example]", ":9464", "evil.example:port"),
]


@pytest.mark.parametrize("host", SAFE)
def test_ip_addresses_and_names_that_cannot_be_registered_are_admitted(host):
    assert AllowedHosts().is_allowed(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_a_host_name_that_can_be_registered_is_refused(host):
    assert not AllowedHosts().is_allowed(host)


def test_host_names_of_the_served_address_and_of_the_setting_are_admitted(monkeypatch):
    monkeypatch.setattr(address.socket, "gethostname", lambda: "Ada.example.org")
    for bound, more in (("Metrics.example.org", None), ("0.0.0.0", " a.example , metrics.example.org.,"), ("::", "*")):
        given = build_allowed_hosts(bound, more)
        assert given.is_allowed("metrics.example.org:9464")
        assert given.is_allowed("ada.example.org.")
        assert given.is_allowed("10.0.0.1")
    assert not build_allowed_hosts("0.0.0.0", "a.example").is_allowed("b.a.example")


@pytest.fixture
def served():
    server = HttpServer(
        Starlette(routes=build_routes("partbox", [watched()], build_allowed_hosts("127.0.0.1", "proxy.example")))
    )
    server.start()
    yield server
    server.stop()


def answer(server, path, host):
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    try:
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_every_path_of_a_node_checks_the_host_name(served, path):
    for host in ("evil.example", "evil.example:80"):
        status, text = answer(served, path, host)
        assert status == 403
        assert "http_names" in text
        assert "partbox_" not in text
    for host in ("10.0.0.7:9464", "proxy.example", "node-1"):
        assert answer(served, path, host)[0] == 200


def test_a_probe_by_http_1_0_without_a_host_name_is_answered(served):
    import socket

    where = urlsplit(served.url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as conn:
        conn.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 200 " in conn.recv(4096)
