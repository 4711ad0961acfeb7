"""The tutorial, typed: scripts/tutorial.py types it too, with nothing but the wheel."""

import re
import sys
from pathlib import Path

import psycopg
from page_reader import Reader
from waiting import eventually

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from tutorial_page import alike, blocks, commands, with_confirm

SCREEN = 24  # lines
NOTES = re.compile(r"^note  .*\n(?:  .*\n)*\n|, \d notes?", re.MULTILINE)
"""What doctor says of a server of tests, which syncs nothing."""
HEALTHY = "schema partbox: healthy"
DELIVERED = re.compile(r"^order \d+ is (?:placed: (?:(?!order).)+|shipped)$", re.MULTILINE)
"""A whole line, which no other thread has broken."""
SHOP, APPLICATION, BROKEN, MENDED = blocks("python")


def attempts(dsn: str) -> int:
    """Of the event that is tried again, as the database has them."""
    with psycopg.connect(dsn) as conn:
        found = conn.execute("select attempts from partbox.parked where state = 'retrying'").fetchone()
    return found[0] if found else 0


def test_the_programs_of_the_tutorial_deliver_everything_on_one_screen(reader: Reader) -> None:
    (reader.folder / "shop.py").write_text(SHOP)
    (reader.folder / "application.py").write_text(APPLICATION)

    first = reader("partbox", "init") + reader("python", "shop.py")
    printed = reader("partbox", "worker", "shop:outbox", *reader.worker)
    screen = (first + printed + reader.logged).splitlines()
    there = reader("python", "application.py")

    assert len(DELIVERED.findall(printed)) == len(DELIVERED.findall(there)) == 10
    assert len(screen) <= SCREEN, screen
    assert max(map(len, screen)) <= 2 * 100  # one of the log may take two


def test_the_problem_in_the_tutorial_is_found_and_fixed_as_the_page_says(reader: Reader, empty_dsn: str) -> None:
    *_, start, ask, retry, again, ask_again = map(commands, blocks("console"))
    (in_order,) = blocks("text")
    broken, mended = reader.folder / "broken.log", reader.folder / "mended.log"
    (reader.folder / "shop.py").write_text(SHOP)
    reader("partbox", "init")
    for _ in range(3):  # as the page does before
        reader("python", "shop.py")
    reader("partbox", "worker", "shop:outbox", *reader.worker)

    (reader.folder / "shop.py").write_text(with_confirm(SHOP, BROKEN))
    ((node, _),) = start
    reader.start(broken, *node.split())
    (sell, _), (doctor, problem) = ask
    reader(*sell.split())
    eventually(lambda: attempts(empty_dsn) >= 3)  # as many as there are in the seconds of a person
    found = reader(*doctor.split(), code=1)
    reader.press_ctrl_c()
    assert alike(NOTES.sub("", found)) == alike(problem)
    assert len(DELIVERED.findall(broken.read_text())) == 8

    (reader.folder / "shop.py").write_text(with_confirm(SHOP, MENDED))
    ((command, answer),) = retry
    assert reader(*command.split()) == answer
    assert again == start
    reader.start(mended, *node.split())
    eventually(lambda: len(DELIVERED.findall(mended.read_text())) == 2)
    ((doctor, healthy),) = ask_again
    assert healthy.startswith(HEALTHY)
    assert HEALTHY in reader(*doctor.split())
    assert "\n".join(line for line in mended.read_text().splitlines() if line.startswith("order ")) + "\n" == in_order
