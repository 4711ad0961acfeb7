"""The dashboards as they are committed."""

import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from expressions import BOARDS, GRAFANA, OBJECTIVES, ROOT, RULES, alerts, board, of_boards, panels, rules
from promtool import needed, promtool

from partbox.observe.metrics.table import METRICS

NAME = re.compile(r"\bpartbox_\w+")


def made(folder):
    """Everything that scripts/grafana writes, made anew; by name."""
    folder.mkdir()
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, GRAFANA / "source", "--into", folder], check=True, env=environment)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*")}


def exposed():
    """The names of all series that partbox exposes."""
    names = set()
    for metric in METRICS:
        endings = ("_bucket", "_count", "_sum") if metric.kind == "histogram" else ("",)
        names |= {f"partbox_{metric.name}{ending}" for ending in endings}
    return names


def test_the_committed_dashboards_are_what_the_script_reproducibly_makes(tmp_path):
    once, again = made(tmp_path / "once"), made(tmp_path / "again")
    assert once == again
    assert once == {name: (GRAFANA / name).read_text() for name in once}, "run scripts/grafana"
    assert {path.name for path in BOARDS} == {name.partition("/")[2] for name in once if name.startswith("dashboards/")}


@needed
def test_prometheus_can_parse_every_expression_of_a_panel(tmp_path):
    rules = [{"record": f"record:{number}", "expr": text} for number, (_, text) in enumerate(of_boards())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_every_metric_in_an_expression_is_exposed():
    asked = {name for each in of_boards() for name in NAME.findall(each.text)}
    asked |= {name for rule in alerts() + rules(OBJECTIVES) for name in NAME.findall(rule["expr"])}
    assert asked - exposed() == set()


def test_every_metric_is_on_a_dashboard():
    shown = {name for each in of_boards() for name in NAME.findall(each.text)}
    unseen = {metric.name for metric in METRICS if not any(name.startswith(f"partbox_{metric.name}") for name in shown)}
    assert unseen == set()


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_says_what_it_shows_in_which_unit_and_what_to_do(path):
    for panel in panels(path):
        assert len(panel["description"]) > 40, panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit") or panel["options"].get("yAxis", {}).get(
            "unit"
        )
        assert unit or panel["type"] == "state-timeline", panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_values_with_names_are_not_coloured_by_thresholds_which_would_merge_them(path):
    for panel in panels(path):
        shown = panel.get("fieldConfig", {}).get("defaults", {})
        assert not shown.get("mappings") or shown["color"]["mode"] == "fixed"


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_no_panel_covers_another(path):
    taken = [
        (x, y)
        for panel in board(path)["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


def test_dashboards_and_panels_have_unique_names():
    found = [board(path) for path in BOARDS]
    assert len({each["uid"] for each in found}) == len({each["title"] for each in found}) == len(found)
    for each in found:
        assert len({panel["id"] for panel in each["panels"]}) == len(each["panels"])
        names = [variable["name"] for variable in each["templating"]["list"]]
        assert names[:4] == ["datasource", "job", "database", "subscription"]


def test_the_provisioning_files_of_grafana_fit_together():
    compose = yaml.safe_load((GRAFANA / "compose.yaml").read_text())
    mounts = {mount.split(":")[0]: mount.split(":")[1] for mount in compose["services"]["grafana"]["volumes"]}
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/partbox.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    scrapes = yaml.safe_load((GRAFANA / "prometheus/prometheus.yml").read_text())

    assert provider["options"]["path"] == mounts["./dashboards"]
    assert mounts["./provisioning"] == "/etc/grafana/provisioning"
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
    assert source["jsonData"]["timeInterval"] == scrapes["global"]["scrape_interval"]
    assert scrapes["scrape_configs"][0]["honor_labels"] is True
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        local = [mount.split(":")[0] for mount in service["volumes"] if mount.startswith("./")]
        assert all((GRAFANA / name).is_dir() for name in local)
        named = {mount.split(":")[0] for mount in service["volumes"]} - set(local)
        assert named <= compose["volumes"].keys()
    assert (GRAFANA / "prometheus" / scrapes["rule_files"][0]).parent == RULES.parent


def test_the_page_on_objectives_names_every_alert_and_the_numbers_of_the_rules():
    page = (ROOT / "docs" / "slo.md").read_text()
    assert [rule["alert"] for rule in alerts(OBJECTIVES) if f"`{rule['alert']}`" not in page] == []
    own = tomllib.loads((GRAFANA / "thresholds.toml").read_text())["slo"]
    for number in (
        f"within {own['seconds']} s",
        f"{own['deliveries']:.1%}".replace("%", " %"),
        f"{own['time']:.1%}".replace("%", " %"),
    ):
        assert number in page


def test_the_page_on_grafana_names_every_dashboard_and_alert():
    page = (ROOT / "docs" / "grafana.md").read_text()
    assert [rule["alert"] for rule in alerts() if f"`{rule['alert']}`" not in page] == []
    assert [path.name for path in BOARDS if f"`{path.stem}`" not in page] == []
