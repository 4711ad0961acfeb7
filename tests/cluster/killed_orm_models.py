"""The models of killed_orm_app.py, for SQLAlchemy and for SQLModel."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlmodel import Field, SQLModel


class Base(DeclarativeBase):
    pass


class Tally(Base):
    __tablename__ = "tally"
    aggregate: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int]


class Trace(Base):
    __tablename__ = "trace"
    id: Mapped[int] = mapped_column(primary_key=True)
    aggregate: Mapped[str]
    seq: Mapped[int]


class ModelTally(SQLModel, table=True):
    __tablename__ = "tally"
    aggregate: str = Field(primary_key=True)
    total: int


class ModelTrace(SQLModel, table=True):
    __tablename__ = "trace"
    id: int | None = Field(default=None, primary_key=True)
    aggregate: str
    seq: int
