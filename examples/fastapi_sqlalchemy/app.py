"""The application: writes orders, and publishes their events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from events import OrderPlaced
from fastapi import Depends, FastAPI
from pydantic import BaseModel
from shop import outbox
from sqlalchemy import UniqueConstraint, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from partbox.sqlalchemy import EventsMixin, collect

engine = create_async_engine(make_url(outbox.dsn).set(drivername="postgresql+psycopg"))
sessions = collect(async_sessionmaker(engine), outbox)  # publishes what entities gather, before the commit


class Base(DeclarativeBase): ...


class Order(EventsMixin, Base):
    __tablename__ = "orders"
    __table_args__ = (UniqueConstraint("reference", deferrable=True, initially="DEFERRED"),)  # checked at the commit
    id: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str]
    total: Mapped[int]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


async def session() -> AsyncIterator[AsyncSession]:
    """A transaction for a request: committed if the endpoint returns, rolled back if it raises."""
    async with sessions.begin() as session:
        yield session


Session = Annotated[AsyncSession, Depends(session, scope="function")]  # ends before the answer is sent


class NewOrder(BaseModel):
    reference: str
    total: int


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(new: NewOrder, session: Session) -> dict[str, int]:
    order = Order(reference=new.reference, total=new.total)
    session.add(order)
    await session.flush()  # gives it its id
    order.events.append(OrderPlaced(order_id=order.id, reference=order.reference, total=order.total))
    return {"id": order.id}
