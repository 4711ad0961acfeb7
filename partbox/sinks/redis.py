"""Redis streams sink, by redis-py: `redis://HOST:PORT/DB?maxlen=N&replicas=N`, `rediss://…`, `unix://…`.

A batch is one transaction: it is in the streams whole and in order, or not at all. A batch counts as sent when the
replicas have confirmed it as well, so that a failover to one of them does not lose it. Redis keeps acknowledged entries
only as well as its `appendfsync` setting says."""

import inspect
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import RETRY_LATER, Result, Sink, library
from partbox.text.dsn import mask_option_name, query_of
from partbox.text.secrets import mask_url
from partbox.text.wording import format_hint

# Bytes of a value that every Redis accepts: the minimum of `proto-max-bulk-len`.
SAFE_SIZE: Final = 1 << 20
# Bytes of a value, for a Redis that does not report its limit.
DEFAULT_LIMIT: Final = 512 << 20

# Seconds that a batch waits for the replicas, at most; less if the sink's own timeout is short.
REPLICA_TIMEOUT: Final = 10.0

_NUMBER = re.compile("[0-9]{1,9}")


class RedisSink(Sink):
    """A sink that adds events to Redis streams.

    `maxlen` is about how many entries a stream keeps, None for all. `replicas` is how many replicas must confirm a
    batch; without them the batch is sent again. None is for all that are connected, as far as they confirm in time.
    The fields of an entry are `data` (the payload), `key`, `content-type`, `ce_id` and the other CloudEvents
    attributes, and the publisher's headers."""

    gapless = True

    # False while a connected replica has not confirmed a batch in time, probably because it still loads a copy.
    _awaits_loading = True

    def __init__(
        self,
        url: str,
        topic: str = DEFAULT,
        *,
        maxlen: int | None = None,
        replicas: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(topic, **options)
        self._url = url
        self._maxlen = maxlen
        self._replicas = replicas
        self._open: Any = None

    @classmethod
    def from_url(cls, url: str, topic: str) -> "RedisSink":
        parts = urlsplit(url)
        query = query_of(url)
        maxlen, replicas = query.pop("maxlen", None), query.pop("replicas", None)
        where = mask_url(url)
        if maxlen is not None and not (_NUMBER.fullmatch(maxlen) and int(maxlen)):
            raise SettingsError(f"maxlen={maxlen} in {where!r} is not a number of entries, such as ?maxlen=100000")
        if replicas is not None and not _NUMBER.fullmatch(replicas):
            raise SettingsError(f"replicas={replicas} in {where!r} is not a number of replicas, such as ?replicas=1")
        if parts.scheme != "unix" and not _NUMBER.fullmatch(query.get("db", parts.path.strip("/") or "0")):
            raise SettingsError(f"{where!r} names no database by its number: write redis://HOST:6379/0")
        plain = urlunsplit(parts._replace(query=urlencode(query)))
        return cls(
            plain,
            topic,
            maxlen=None if maxlen is None else int(maxlen),
            replicas=None if replicas is None else int(replicas),
        )

    def check(self) -> None:
        """Raise SettingsError if the client library is missing or does not understand the URL."""
        errors = library("redis.exceptions", "redis")
        pool = self._make_client().connection_pool
        try:
            # Reads the options of the URL, but opens nothing.
            pool.make_connection()
        except (errors.RedisError, ValueError) as error:
            raise SettingsError(f"{mask_url(self._url)!r}: {error}: correct that option") from None
        except TypeError as error:
            known = {"maxlen", "replicas", *_list_options(pool.connection_class)}
            unknown = next((name for name in query_of(self._url) if name not in known), None)
            problem = (
                str(error)
                if unknown is None
                else f"unknown option {mask_option_name(unknown)!r}: {format_hint(unknown, sorted(known))}"
            )
            raise SettingsError(f"{mask_url(self._url)!r}: {problem}") from None

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        errors = library("redis.exceptions", "redis")
        client = self._open = self._open or self._make_client()
        try:
            if any(len(message.value) > SAFE_SIZE for message in messages):
                return await self._add_fitting(await _read_limit(client), client, messages)
            return await self._add_messages(client, messages)
        except (errors.ConnectionError, errors.TimeoutError, errors.ExecAbortError, OSError) as error:
            raise DownstreamUnavailable(f"Redis: {error}") from error
        # A command that should wait for EXEC was refused. Nothing has been added.
        except errors.ResponseError as error:
            raise _build_transaction_error(error, errors) from error
        finally:
            # `close` ran meanwhile and could not close a connection that was still being made.
            if client is not self._open:
                await client.aclose()

    async def _add_messages(self, client: Any, messages: Sequence[Message]) -> list[Result]:
        replicas = await self._count_replicas(client)
        # WAIT asks about the writes of its own connection, so it goes out behind the transaction in one piece.
        async with client.pipeline(transaction=False) as pipe:
            pipe.execute_command("MULTI")
            for message in messages:
                pipe.xadd(message.topic, _build_fields(message), maxlen=self._maxlen, approximate=True)
            pipe.execute_command("EXEC")
            pipe.wait(replicas, int(self._replica_timeout * 1_000))
            *queued, added, confirmed = await pipe.execute(raise_on_error=False)
        for answer in (*queued, added):
            if isinstance(answer, Exception):
                raise answer
        self._check_replicas(replicas, confirmed)
        return [_result_of(message, answer) for message, answer in zip(messages, added, strict=True)]

    @property
    def _replica_timeout(self) -> float:
        return min(REPLICA_TIMEOUT, self._timeout / 2)

    async def _count_replicas(self, client: Any) -> int:
        """Return the number of replicas that the next batch waits for."""
        if self._replicas is not None:
            return self._replicas
        try:
            info = await client.info("replication")
        # The user may not read it.
        except library("redis.exceptions", "redis").ResponseError:
            return 0
        connected = int(info.get("connected_slaves", 0))
        if self._awaits_loading:
            return connected
        online = [info[f"slave{number}"]["state"] for number in range(connected)].count("online")
        self._awaits_loading = online == connected
        return online

    def _check_replicas(self, asked: int, confirmed: object) -> None:
        """Raise DownstreamUnavailable if the server became a replica, or fewer than `replicas` replicas confirmed."""
        if isinstance(confirmed, int):
            if confirmed >= asked:
                return
            # The batch is in the primary's streams. To send it again for a slow replica would add it twice.
            if self._replicas is None:
                self._awaits_loading = False
                return
            within = f"{self._replica_timeout:g} s"
            raise DownstreamUnavailable(f"Redis: {confirmed} of {asked} replicas confirmed the events within {within}")
        # Servers without WAIT, and users who may not call it, are as safe as the server makes them.
        is_demoted = str(confirmed).startswith("UNBLOCKED")
        if is_demoted or self._replicas:
            raise DownstreamUnavailable(f"Redis: {confirmed}")

    async def _add_fitting(self, limit: int, client: Any, messages: Sequence[Message]) -> list[Result]:
        # Redis would end the connection at a value that is too large, and the whole batch would be lost.
        results: list[Result] = [RETRY_LATER] * len(messages)
        failed: set[str | None] = set()
        places = []
        for place, message in enumerate(messages):
            if message.key is not None and message.key in failed:
                continue
            if len(message.value) > limit:
                size = f"{len(message.value):,} bytes"
                text = f"Redis takes no value of {size}, only up to {limit:,}: raise its proto-max-bulk-len"
                results[place] = UnrecoverableError(text)
                failed.add(message.key)
            else:
                places.append(place)
        added = await self._add_messages(client, [messages[place] for place in places])
        for place, result in zip(places, added, strict=True):
            results[place] = result
        return results

    async def close(self) -> None:
        client, self._open = self._open, None
        if client is not None:
            await client.aclose()

    def _make_client(self) -> Any:
        redis = library("redis.asyncio", "redis")
        try:
            return redis.from_url(self._url, socket_timeout=None, socket_connect_timeout=self._timeout)
        except ValueError as error:
            raise SettingsError(f"{mask_url(self._url)!r}: {error}; write redis://HOST:6379/0") from None


async def _read_limit(client: Any) -> int:
    try:
        return int((await client.config_get("proto-max-bulk-len"))["proto-max-bulk-len"])
    # The user may not read the setting.
    except (library("redis.exceptions", "redis").ResponseError, KeyError):
        return DEFAULT_LIMIT


def _list_options(connection: type) -> set[str]:
    taken = (inspect.signature(kind).parameters for kind in connection.__mro__[:-1])
    return {name for parameters in taken for name in parameters} - {"args", "kwargs"}


def _build_fields(message: Message) -> dict[str, str | bytes]:
    key = {} if message.key is None else {"key": message.key}
    return {**message.bound("ce_", "content-type"), **key, "data": message.value}


def _build_transaction_error(error: Exception, errors: Any) -> Exception:
    # Full memory, a replica or a failing disk affects all events, unlike a stream that the user may not write to.
    is_ours = not isinstance(error, errors.NoPermissionError)
    return DownstreamUnavailable(f"Redis: {error}") if is_ours else PermissionError(f"Redis: {error}")


def _result_of(message: Message, answer: object) -> Result:
    if not isinstance(answer, Exception):
        return None
    # All messages to that stream get the same error, so it is not final.
    return RuntimeError(f"Redis does not add to stream {message.topic!r}: {answer}")
