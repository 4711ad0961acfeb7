"""Owners of partitions."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from model_clock import ModelClock
from owner import AS_SHIPPED, PARTITION, Owner


@pytest.fixture
def owner_with(dsn: str, stage: tuple[asyncio.AbstractEventLoop, ModelClock]) -> Iterator[Callable[..., Owner]]:
    made: list[Owner] = []

    def make(partitions: Sequence[int] = (PARTITION,), dsn: str = dsn, **shape: Any) -> Owner:
        if made:
            made.pop().close()
        made.append(Owner(*stage, dsn, partitions, AS_SHIPPED._replace(**shape)))
        return made[-1]

    yield make
    for owner in made:
        owner.close()


@pytest.fixture
def owner(owner_with: Callable[..., Owner]) -> Owner:
    return owner_with()
