"""Entities that gather events, and sessions that publish them."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, reconstructor, sessionmaker

from partbox import Event, Outbox
from partbox.sqlalchemy import EventsMixin, collect


class Base(DeclarativeBase): ...


class Order(EventsMixin, Base):
    __tablename__ = "collected_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")

    def tell(self, name: str) -> None:
        self.state = name
        self.events.append(Event(name, None))


class Product(Base):
    """As in "Architecture Patterns with Python": a plain list, made in the constructor and when it is loaded."""

    __tablename__ = "collected_product"
    sku: Mapped[str] = mapped_column(primary_key=True)

    def __init__(self, sku: str) -> None:
        self.sku = sku
        self.events: list[Event] = []

    @reconstructor
    def loaded(self) -> None:
        self.events = []


class Log(Base):
    """Whose `events` are a column of its own."""

    __tablename__ = "collected_log"
    id: Mapped[int] = mapped_column(primary_key=True)
    events: Mapped[str]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def engine(dsn: str) -> Iterator[Engine]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine: Engine, outbox: Outbox) -> "sessionmaker[Session]":
    return collect(sessionmaker(engine), outbox)


@pytest.fixture
def published(conn: psycopg.Connection[Any]) -> Callable[[], list[str]]:
    """The types of the events in the log, in its order."""
    return lambda: [name for (name,) in conn.execute("select event_type from partbox.record order by id").fetchall()]
