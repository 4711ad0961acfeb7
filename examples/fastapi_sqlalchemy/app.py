"""The application: writes orders, and publishes their events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from shop import outbox
from sqlalchemy import UniqueConstraint, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

engine = create_async_engine(make_url(outbox.dsn).set(drivername="postgresql+psycopg"))
sessions = async_sessionmaker(engine)


class Base(DeclarativeBase): ...


class Order(Base):
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
    await outbox.publish_async(
        session, "OrderPlaced", {"total": order.total}, aggregate_type="Order", aggregate_id=order.id
    )
    return {"id": order.id}
