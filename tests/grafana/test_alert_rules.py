"""The alert rules as they are committed."""

import re

import yaml
from expressions import BOARDS, GRAFANA, RULES, alerts, panels
from promtool import needed, promtool

from partbox.cli import command as whole

UNIT_TESTS = GRAFANA / "prometheus" / "tests" / "alerts.yml"
COMMAND = re.compile(r"`partbox (\w+)(?: ([a-z]+))?")
FIRING = re.compile(r'alertname="(\w+)", alertstate="firing"')


@needed
def test_prometheus_accepts_the_configuration_and_the_rules():
    promtool("check", "config", GRAFANA / "prometheus" / "prometheus.yml")
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)


@needed
def test_every_alert_fires_when_it_should_not_earlier_and_clears():
    promtool("test", "rules", UNIT_TESTS)


def test_every_alert_is_tested_before_it_fires_while_it_does_and_after():
    moments = {}
    for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]:
        for each in test.get("promql_expr_test", []):
            for name in FIRING.findall(each["expr"]):
                moments.setdefault(name, []).append("exp_samples" in each)
        for each in test.get("alert_rule_test", []):
            moments.setdefault(each["alertname"], []).append("exp_alerts" in each)
    assert moments == {rule["alert"]: [False, True, False] for rule in alerts()}


def test_every_alert_has_a_waiting_time_and_says_what_happens_and_what_to_do():
    for rule in alerts():
        assert rule["for"] not in ("", "0s"), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["description"]) > 60


def test_every_command_that_a_person_is_told_to_run_exists():
    told = [text for rule in alerts() for text in rule["annotations"].values()]
    told += [panel["description"] for path in BOARDS for panel in panels(path)]
    named = {match for text in told for match in COMMAND.findall(text)}
    assert len(named) > 5
    for command, subcommand in named:
        found = whole().commands[command]
        assert not subcommand or subcommand in getattr(found, "commands", {}), f"partbox {command} {subcommand}"
