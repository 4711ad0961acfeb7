"""`partbox worker` for real: its options reach the outbox in the worker process, before the keywords of its code."""

import os
from pathlib import Path

from partbox import Outbox
from partbox.db.schema.migrate import migrate

SHOP = """
from partbox import Outbox

outbox = Outbox(schema="keyword", lease="9s", window=7)


@outbox.on("OrderPlaced")
def confirm(event):
    found = outbox.settings
    print([found.schema_name, found.lease, found.window, found.concurrency], flush=True)
    with outbox.transaction() as tx:  # where the options say, and not where the keywords do
        outbox.publish(tx, "OrderConfirmed", {})


@outbox.on("OrderConfirmed")
def confirmed(event):
    print("confirmed", flush=True)
"""


def test_a_worker_process_has_the_options_of_its_command_and_leaves_warnings_to_the_node(forks, dsn, tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)
    migrate(dsn, "flag")
    outbox = Outbox(dsn, schema="flag")
    with outbox.transaction() as tx:
        outbox.publish(tx, "OrderPlaced", {})
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    given = {"PARTBOX_DSN": "host=nowhere", "PARTBOX_LEASE": "8s", "PARTBOX_CONCURENCY": "3", "PARTBOX_PORT": "tcp://x"}
    options = ("--dsn", dsn, "--schema", "flag", "--lease", "10s", "--processes", "1", "--until-empty")

    worker = forks.start("partbox", "worker", "shop:outbox", *options, cwd=tmp_path, env=kept | given)
    out, log = worker.communicate()

    assert (worker.wait(), out) == (0, "['flag', 10.0, 7, 4]\nconfirmed\n"), log
    warnings = [line for line in log.splitlines() if "PARTBOX_CONCURENCY" in line]
    assert len(warnings) == 1
    assert "WARNING partbox[" in warnings[0]
    assert "PARTBOX_CONCURENCY (did you mean PARTBOX_CONCURRENCY?), PARTBOX_PORT;" in warnings[0]
