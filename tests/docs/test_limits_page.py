"""The page on limits: its program delivers, its commands and its other program do what it says."""

import re

from test_programs import ROOT, blocks


def test_the_programs_of_the_page_on_limits_deliver_and_change_limits_as_it_says(reader):
    program, change = blocks("docs/limits.md")
    (reader.folder / "app.py").write_text(program)
    (reader.folder / "change.py").write_text(f"from app import outbox\n\n{change}")
    reader("partbox", "init")
    reader("python", "app.py")
    printed = reader("partbox", "worker", "app:outbox", *reader.worker).splitlines()
    assert {f"charged order {number}" for number in range(3)} <= {*printed}
    assert printed.count("report for acme") == 2
    assert {"report for zoo", "mail to ada@example.org", "mail to bob@example.org"} <= {*printed}

    assert reader("python", "change.py") == "charge 20.0 2 0\n"
    commands = re.findall(r"^\$ (partbox limit [^#\n]+)", (ROOT / "docs/limits.md").read_text(), re.MULTILINE)
    done = [reader(*command.split()) for command in commands]
    assert [text.split(":")[0] for text in (*done[:3], done[4])] == [
        "limited handler charge",
        "limited handler charge",
        "limited handler charge",
        "handler charge is back to its declared limits; its workers apply them within a heartbeat\n",
    ]
    assert len(commands) == 10
    assert [text.split(";")[0].strip() for text in done[5:]] == [
        "limited handler charge: rate 0",
        "limited value 4711 of handler charge: rate 0",
        "limited event type OrderPaid: rate 0",
        "limited tenant acme: rate 0",
        "value 4711 of handler charge goes on",
    ]
    assert "charge" in done[3]
