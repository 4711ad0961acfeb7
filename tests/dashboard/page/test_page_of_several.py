"""The page of a node that works for several databases."""

import logging
from collections.abc import Iterator

import pytest

from partbox import Outbox
from partbox.dashboard import build_pages
from partbox.supervisor.serving import serve_pages


@pytest.fixture
def address(dsn, caplog) -> Iterator[str]:
    """The page of a node whose second database cannot be reached."""
    caplog.set_level(logging.INFO, "partbox.http")
    away = (
        Outbox("postgresql://ada:s3cret@127.0.0.1:1/billing")
        ._make_nodes()
        .build_supervisor(name="billing", metrics=True)
    )
    away._database_retry.try_join()
    with serve_pages(
        ":0", [Outbox(dsn)._make_nodes().build_supervisor(name="orders", metrics=True), away], build_pages
    ):
        where = next(word for word in caplog.messages[-1].split() if word.startswith("http://"))
        yield f"{where.rstrip(',')}/"


@pytest.mark.thorough
def test_the_page_names_all_databases_and_links_to_the_one_in_trouble(address, conn, tab):
    seen = tab(address)
    seen.waits_for("#where", f"database {conn.info.dbname}")
    links = seen.page.locator("#databases a")
    assert [links.nth(place).locator("bdi").inner_text() for place in range(2)] == ["orders", "billing"]
    assert links.nth(0).get_attribute("aria-current") == "page"
    trouble = seen.waits_for("[data-trouble='database-./databases/2/']", "does not work for database billing")
    assert "cannot connect to the database" in trouble.inner_text()
    trouble.get_by_role("button", name="Show it").click()
    seen.waits_for("#databases a[aria-current]", "billing")
    assert seen.page.url == f"{address}databases/2/"
    seen.waits_for("[data-trouble=database-away]", "The database does not answer")
    assert "s3cret" not in seen.page.content()
    seen.page.locator("#databases a", has_text="orders").click()
    seen.waits_for("#where", f"database {conn.info.dbname}")
    assert seen.page.url == address


def test_with_one_database_there_is_no_choice_of_them(live, tab):
    seen = tab(live.address)
    seen.waits_for("#connection", "Live")
    assert seen.page.locator("#databases").is_hidden()
