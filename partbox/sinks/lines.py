"""Sinks that write JSON lines to standard output or to a file: CloudEvents in structured mode, one on each line. Lines
of several processes do not mix, and a full disk tears none (see `appending`)."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from partbox.codecs import JSON
from partbox.errors import DownstreamUnavailable, SettingsError
from partbox.sinks.appending import append, append_to_stdout, open_for_append
from partbox.sinks.message import DEFAULT, Message, in_json
from partbox.sinks.sink import Result, Sink
from partbox.text.secrets import mask_url


def line_of(message: Message) -> bytes:
    """Return a message as one line of JSON. A payload that is not JSON is in `data_base64`."""
    is_json = message.content_type == JSON and message.event.content_type is None
    return orjson.dumps(
        {
            **message.attributes,
            "topic": message.topic,
            "headers": message.headers,
            "datacontenttype": message.content_type,
            **in_json("data", message.value, is_json=is_json),
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


class StdoutSink(Sink):
    """A sink that prints each event as a line on standard output. Its URL is `stdout:`."""

    gapless = True

    @classmethod
    def from_url(cls, url: str, topic: str) -> "StdoutSink":
        if urlsplit(url)[1:] != ("", "", "", ""):
            raise SettingsError(f"{mask_url(url)!r} has more than the scheme: write stdout: alone")
        return cls(topic)

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        try:
            await asyncio.to_thread(append_to_stdout, b"".join(map(line_of, messages)))
        except OSError as error:
            raise DownstreamUnavailable(f"stdout: {error.strerror}") from error
        return [None] * len(messages)


class FileSink(Sink):
    """A sink that appends each event as a JSON line to a file.

    Its URL is `file:PATH`. Events are acknowledged when they are on the disk."""

    gapless = True

    def __init__(self, path: str | os.PathLike[str], topic: str = DEFAULT, **options: Any) -> None:
        super().__init__(topic, **options)
        self._path = Path(path)

    @classmethod
    def from_url(cls, url: str, topic: str) -> "FileSink":
        parts = urlsplit(url)
        if not parts.path or parts.netloc or parts.query or parts.fragment:
            raise SettingsError(
                f"{mask_url(url)!r} names no file: write file:PATH, such as file:events.jsonl or file:/tmp/events"
            )
        return cls(unquote(parts.path), topic)

    def check(self) -> None:
        """Raise SettingsError if the file cannot be opened for appending."""
        try:
            os.close(open_for_append(self._path))
        except OSError as error:
            raise SettingsError(f"events cannot be written to {self._path}: {error.strerror}") from None

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        try:
            await asyncio.to_thread(append, self._path, b"".join(map(line_of, messages)))
        # A full disk or a removed folder is no fault of an event.
        except OSError as error:
            raise DownstreamUnavailable(f"{self._path}: {error.strerror}") from error
        return [None] * len(messages)
