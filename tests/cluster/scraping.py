"""The HTTP answers of a node: one scrape, its probes; and events to be counted."""

import json
import re
import urllib.error
import urllib.request
from typing import Any

import psycopg
from node import PATIENCE, Node
from prometheus_client.parser import text_string_to_metric_families
from waiting import eventually

from partbox import Event, Outbox

ADDRESS = re.compile(r"health checks at (http://\S+:\d+)")


class Numbers:
    """One scrape. `of(name, **labels)` adds up the samples that have these labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def of(self, name: str, **labels: str) -> float:
        found = [
            each.value
            for each in self.samples
            if each.name == f"partbox_{name}" and labels.items() <= each.labels.items()
        ]
        assert found, f"no {name} with {labels}"
        return sum(found)

    def labels(self, name: str, label: str) -> set[str]:
        return {each.labels[label] for each in self.samples if each.name == f"partbox_{name}"}

    def counters(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        kinds = ("_total", "_count", "_sum", "_bucket")
        return {
            (each.name, tuple(sorted(each.labels.items()))): each.value
            for each in self.samples
            if each.name.endswith(kinds)
        }


class Watched:
    """A node, and its answers over HTTP."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.url = eventually(lambda: ADDRESS.search(node.log), PATIENCE, 0.05).group(1)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def numbers(self) -> Numbers:
        status, text = self.get("/metrics")
        assert status == 200
        return Numbers(text)

    def probe(self, path: str) -> tuple[int, dict[str, Any]]:
        status, text = self.get(path)
        return status, json.loads(text)


def publish(dsn: str, event_type: str, count: int, keys: int = 20, **payload: Any) -> None:
    outbox = Outbox(dsn)
    with psycopg.connect(dsn) as conn:
        outbox.publish_many(
            conn,
            [Event(event_type, payload, aggregate_type="T", aggregate_id=f"{n % keys}") for n in range(count)],
        )


def settled(watched: Watched, name: str, expected: float, **labels: str) -> Numbers:
    """The first scrape in which it is so."""

    def look() -> Numbers:
        numbers = watched.numbers()
        assert numbers.of(name, **labels) == expected
        return numbers

    return eventually(look, PATIENCE, 0.1)
