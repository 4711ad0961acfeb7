"""The application: writes orders, and publishes their events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from shop import outbox
from sqlalchemy import DDL, event, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

engine = create_async_engine(make_url(outbox.dsn).set(drivername="postgresql+psycopg"))
sessions = async_sessionmaker(engine)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


CHECKED_AT_COMMIT = """
create or replace function total_is_positive() returns trigger language plpgsql as $$
begin
    if new.total < 0 then raise 'a total below 0'; end if;
    return null;
end $$;
create constraint trigger positive after insert on orders deferrable initially deferred
    for each row execute function total_is_positive()
"""
event.listen(Order.__table__, "after_create", DDL(CHECKED_AT_COMMIT))


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
    total: int


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(new: NewOrder, session: Session) -> dict[str, int]:
    order = Order(total=new.total)
    session.add(order)
    await session.flush()  # gives it its id
    await outbox.publish_async(
        session, "OrderPlaced", {"total": order.total}, aggregate_type="Order", aggregate_id=order.id
    )
    return {"id": order.id}
