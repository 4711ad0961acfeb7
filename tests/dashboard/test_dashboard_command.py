"""`partbox dashboard` and `partbox demo` as people run them."""

import http.client
import json
import os
import signal
import socket
from urllib.parse import urlsplit

import psutil
import pytest
from forked_commands import Command
from waiting import eventually


@pytest.fixture
def run(tmp_path, forks):
    """Starts a command; it is ended with the test."""
    started = []

    def run(*arguments: str, **settings: str) -> Command:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        started.append(forks.start("partbox", *arguments, cwd=tmp_path, env=environment | settings))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def served(line: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection to the address in a line, and the token behind it."""
    address = urlsplit(line[line.index("http://") :].strip())
    return http.client.HTTPConnection(address.netloc, timeout=30), address.fragment.removeprefix("token=")


def test_the_command_prints_its_address_and_ctrl_c_ends_it_despite_an_open_stream(run, dsn):
    process = run("dashboard", "--dsn", dsn, "--http", ":0")
    connection, token = served(process.stdout.readline())
    assert len(token) >= 20
    assert "Ctrl-C ends the page" in process.stdout.readline()
    connection.request("GET", "/events", headers={"authorization": f"Bearer {token}"})
    response = connection.getresponse()
    frame = json.loads(response.readline().removeprefix(b"data: "))
    assert (frame["schema"], "replay" in frame["may"]) == ("partbox", True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    connection.close()


def test_the_token_of_the_environment_is_used(run, dsn):
    process = run("dashboard", "--dsn", dsn, "--http", ":0", PARTBOX_HTTP_TOKEN="chosen-by-an-operator")
    connection, token = served(process.stdout.readline())
    assert token == "chosen-by-an-operator"
    connection.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert token not in " ".join(process.args)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--http", "nowhere"), "must be HOST:PORT"),
        (("--schema", "nowhere"), "run `partbox init --schema nowhere`"),
        (("--dsn", "postgresql://shop:hunter2@127.0.0.1:1/shop"), "cannot use the database"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(run, dsn, arguments, said):
    process = run("dashboard", "--http", ":0", *(arguments if "--dsn" in arguments else ("--dsn", dsn, *arguments)))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.count("\n"), said in err) == (1, "", 1, True), err
    assert "hunter2" not in err


def test_a_port_that_is_taken_is_one_line_with_the_way_out(run, dsn):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = run("dashboard", "--dsn", dsn, "--http", f":{port}")
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.count("\n")) == (1, "", 1)
    assert f"cannot serve HTTP at 127.0.0.1:{port}: Address already in use: give another HOST:PORT" in err


def test_a_token_that_is_too_short_is_refused_without_being_said(run, dsn):
    process = run("dashboard", "--dsn", dsn, "--http", ":0", PARTBOX_HTTP_TOKEN="s3cret")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, "16 or more" in err, "s3cret" in err) == (1, "", True, False)


def test_the_token_is_no_part_of_what_config_prints(run):
    process = run("config", PARTBOX_HTTP_TOKEN="chosen-by-an-operator")
    out, err = process.communicate(timeout=120)
    assert "http_token" in out
    assert "chosen" not in out + err


def test_the_demo_serves_the_page_with_the_same_process_letters_as_its_own_view(run, empty_dsn):
    process = run("demo", "--dsn", empty_dsn, "--processes", "2", "--rate", "100", "--no-chaos")
    line = next(line for line in process.stdout if "live page:" in line)
    connection, token = served(line)
    connection.request("GET", "/events", headers={"authorization": f"Bearer {token}"})
    response = connection.getresponse()

    def letters() -> bool:
        line = response.readline()
        frame = json.loads(line.removeprefix(b"data: ")) if line.startswith(b"data: ") else {}
        shown = frame.get("subscription") or {"instances": []}
        return [each["letter"] for each in shown["instances"]] in (["A", "B"], ["B", "A"])

    eventually(letters)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0
    connection.close()
    eventually(lambda: not [each for each in psutil.process_iter() if _of(each, process.pid)])


def _of(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session
    except ProcessLookupError:
        return False
