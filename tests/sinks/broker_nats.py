"""NATS with JetStream."""

from typing import Any

from brokers import HOST, Broker, Received, received


class Nats(Broker):
    program = "nats-server"
    largest = 100_000
    words = "headers included: raise its max_payload"
    lacking = "no NATS stream takes the subject '{topic}': add a stream, or add the subject to one"

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def command(self) -> list[str]:
        config = self.folder / "nats.conf"
        config.write_text(f"max_payload: {self.largest}\n")
        return [
            "nats-server", "-c", str(config), "-a", HOST, "-p", str(self.port), "-js", "-sd", str(self.folder / "data"),
        ]  # fmt: skip

    def prepare(self, *topics: str, largest: int = -1) -> None:
        """`largest`: bytes of a message that the stream takes, -1 all."""

        async def add(client: Any) -> None:
            await client.jetstream().add_stream(name=_stream(topics), subjects=[*topics], max_msg_size=largest)

        self._with(add)

    def all(self, *topics: str) -> list[Received]:
        async def read(client: Any) -> list[Received]:
            manager, found = client.jsm(), []
            state = (await manager.stream_info(_stream(topics))).state
            for number in range(max(1, state.first_seq), state.last_seq + 1):
                raw = await manager.get_msg(_stream(topics), number)
                found.append(received(raw.subject, raw.headers, "ce-", raw.data or b"", own=("Nats-Msg-Id",)))
            return found

        return list(self._with(read))

    def _with(self, what: Any) -> Any:
        import asyncio

        import nats

        async def run() -> Any:
            client = await nats.connect(self.url)
            try:
                return await what(client)
            finally:
                await client.close()

        return asyncio.run(run())


def _stream(topics: tuple[str, ...]) -> str:
    return topics[0].upper()
