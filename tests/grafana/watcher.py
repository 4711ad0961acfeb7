"""A Prometheus process that scrapes often, with the committed configuration and rules but for their times."""

import json
import math
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from expressions import GRAFANA
from waiting import eventually

PATIENCE = 120.0


class Watcher:
    """Watches nodes at `targets` and a publishing application at `shop`, all of them HOST:PORT."""

    def __init__(self, folder: Path, targets: list[str], shop: str) -> None:
        self._folder = folder
        self._rules()
        self._configure(targets, shop)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.started = time.time()
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._ready, PATIENCE, 0.1)

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self._active() if alert["state"] == "firing"}

    def annotated(self) -> dict[str, dict[str, str]]:
        """What the alerts that fire now tell."""
        return {alert["labels"]["alertname"]: alert["annotations"] for alert in self._active()}

    def ailing(self) -> list[str]:
        """The errors of rules that could not be evaluated."""
        groups = self._get("/api/v1/rules")["groups"]
        return [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]

    def now(self, expression: str) -> float:
        """The sum of the values of now; 0 of nothing."""
        found = self._get("/api/v1/query", query=expression)["result"]
        return sum(float(series["value"][1]) for series in found)

    def since_start(self, expression: str, step: float = 1) -> list[list[float]]:
        """The finite values of each series from the start until now."""
        window = {"start": self.started, "end": time.time(), "step": step}
        found = self._get("/api/v1/query_range", query=expression, **window)["result"]
        values = ([float(value) for _, value in series["values"]] for series in found)
        return [finite for each in values if (finite := [value for value in each if math.isfinite(value)])]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    def _rules(self) -> None:
        """Rendered by the same script from the thresholds of the tests."""
        thresholds = Path(__file__).with_name("thresholds.toml")
        script = [sys.executable, "-B", GRAFANA / "source", "--thresholds", thresholds, "--into", self._folder / "made"]
        subprocess.run(script, check=True)

    def _configure(self, targets: list[str], shop: str) -> None:
        made = yaml.safe_load((GRAFANA / "prometheus" / "prometheus.yml").read_text())
        made["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        made["rule_files"] = [str(self._folder / "made/prometheus/rules/alerts.yml")]
        made["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
        made["scrape_configs"].append({"job_name": "shop", "static_configs": [{"targets": [shop]}]})
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(made))

    def _active(self) -> list[Any]:
        return list(self._get("/api/v1/alerts")["alerts"])

    def _ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **parameters: Any) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
            return json.load(answer)["data"]


def free_port() -> int:
    """A port of the loopback interface that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
