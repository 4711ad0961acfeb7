"""Statements of the demo and its shop."""

from typing import Any

from psycopg import Connection

from partbox.db.sql import query

Conn = Connection[Any]


def make_shop(conn: Conn, schema: str) -> None:
    """Create the table of orders."""
    conn.execute(query("demo_shop", schema), {})


def place(conn: Conn, schema: str, total: int) -> tuple[int, int] | None:
    """Insert an order; `(order, step)`."""
    return conn.execute(query("demo_place", schema), {"total": total}).fetchone()


def advance(conn: Conn, schema: str, order: int) -> tuple[int, int] | None:
    """Move an order to its next step; `(order, step)`, None if it had taken the last."""
    return conn.execute(query("demo_advance", schema), {"id": order}).fetchone()


def orders(conn: Conn, schema: str) -> list[tuple[int, int]]:
    """Every order as `(order, step)`."""
    return conn.execute(query("demo_orders", schema), {}).fetchall()
