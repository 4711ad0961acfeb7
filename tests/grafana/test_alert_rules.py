"""The alert rules as they are committed."""

import re

import pytest
import yaml
from expressions import BOARDS, GRAFANA, OBJECTIVES, RULES, alerts, panels, rules
from promtool import needed, promtool

from partbox.cli import command as whole

COMMAND = re.compile(r"`partbox (\w+)(?: ([a-z]+))?")
FIRING = re.compile(r'alertname="(\w+)", alertstate="firing"')


@pytest.fixture(params=[RULES, OBJECTIVES], ids=["alerts", "objectives"])
def file(request):
    return request.param


def unit_tests(file):
    return GRAFANA / "prometheus" / "tests" / file.name


@needed
def test_prometheus_accepts_the_configuration_and_the_rules(file):
    promtool("check", "config", GRAFANA / "prometheus" / "prometheus.yml")
    assert f"{len(rules(file))} rules found" in promtool("check", "rules", file)


@needed
def test_every_alert_fires_when_it_should_not_earlier_and_clears(file):
    promtool("test", "rules", unit_tests(file))


def test_every_alert_is_tested_before_it_fires_while_it_does_and_after(file):
    moments = {}
    for test in yaml.safe_load(unit_tests(file).read_text())["tests"]:
        for each in test.get("promql_expr_test", []):
            for name in FIRING.findall(each["expr"]):
                moments.setdefault(name, []).append("exp_samples" in each)
        for each in test.get("alert_rule_test", []):
            moments.setdefault(each["alertname"], []).append("exp_alerts" in each)
    assert moments.keys() == {rule["alert"] for rule in alerts(file)}
    assert {tuple(each) for each in moments.values()} == {(False, True, False)}


def test_every_alert_has_a_waiting_time_and_says_what_happens_and_what_to_do(file):
    for rule in alerts(file):
        assert rule["for"] not in ("", "0s"), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["description"]) > 60


def test_every_command_that_a_person_is_told_to_run_exists():
    told = [text for rule in alerts() + alerts(OBJECTIVES) for text in rule["annotations"].values()]
    told += [panel["description"] for path in BOARDS for panel in panels(path)]
    named = {match for text in told for match in COMMAND.findall(text)}
    assert len(named) > 5
    for command, subcommand in named:
        found = whole().commands[command]
        assert not subcommand or subcommand in getattr(found, "commands", {}), f"partbox {command} {subcommand}"
