"""Models of SQLAlchemy and SQLModel, their tables, and handlers that write with a session."""

from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlmodel import Field, SQLModel


class Base(DeclarativeBase):
    pass


class Tally(Base):
    __tablename__ = "tally"
    key: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int] = mapped_column(default=0)


class Effect(Base):
    __tablename__ = "effect"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]
    number: Mapped[int]
    tally: Mapped[str | None] = mapped_column(ForeignKey("tally.key", deferrable=True, initially="DEFERRED"))


class ModelEffect(SQLModel, table=True):
    __tablename__ = "effect"
    id: int | None = Field(default=None, primary_key=True)
    key: str
    number: int


class OwnSession(Session):
    pass


TABLES = """
create table tally (key text primary key, total int not null default 0);
create table effect (
    id int generated always as identity primary key, key text, number int,
    tally text references tally deferrable initially deferred
)
"""


def write(event: Any, session: Session) -> None:
    session.add(Effect(key=event.aggregate_id, number=event.payload["number"]))


def count(event: Any, session: Session) -> None:
    """Read, change, write: what is committed once is counted once."""
    tally = session.get(Tally, event.aggregate_id) or Tally(key=event.aggregate_id, total=0)
    tally.total += 1
    session.add(tally)
    write(event, session)
