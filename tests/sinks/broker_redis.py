"""Redis, read by the client of Valkey."""

from typing import Any

from brokers import HOST, Broker, Received, received


class Redis(Broker):
    program = "redis-server"
    largest = 1 << 20
    words = "Redis takes no value of 1,048,578 bytes, only up to 1,048,576: raise its proto-max-bulk-len"
    no_topics = "a stream is made by the first entry"

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> list[str]:
        return [
            "redis-server", "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--proto-max-bulk-len", str(self.largest),
        ]  # fmt: skip

    def ready(self) -> bool:
        return bool(self.client().ping())

    def all(self, *topics: str) -> list[Received]:
        found = []
        for topic in topics:
            for _, pairs in self.client().xrange(topic):
                data = pairs.pop(b"data")
                fields = {name.decode(): text.decode() for name, text in pairs.items()}
                found.append(received(topic, fields, "ce_", data, own=("key",)))
        return found

    def calls(self, command: str) -> int:
        """How many commands of this name it was sent."""
        return int(self.client().info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def client(self) -> Any:
        import valkey

        return valkey.Valkey(HOST, self.port)
