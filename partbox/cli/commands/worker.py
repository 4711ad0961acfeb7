"""`partbox worker`: runs the processes that deliver events."""

import sys
from functools import partial
from typing import Annotated

import typer

from partbox.cli.shell.node_options import NodeOptions, apply_logging, load_without_outbox
from partbox.cli.shell.options import Subscription, Target, flag, with_option_groups
from partbox.cli.shell.reload import COMMAND, end_with_outer, is_inner, run_reloading
from partbox.cli.shell.target import load_configured, load_target
from partbox.hosts import restart_patched
from partbox.settings import Settings

Reload = Annotated[
    bool,
    flag("For development: restart when the code changes; events without a handler wait for one.", "--reload"),
]


@with_option_groups
def worker(
    *, target: Target, subscription: Subscription = "default", reload: Reload = False, node: NodeOptions
) -> None:
    """Deliver events to the handlers of an outbox until stopped.

    SIGTERM, Ctrl-C or a closed terminal lets running handlers finish. A second Ctrl-C stops at once, and interrupted
    events are delivered again.

    Example: partbox worker shop:outbox --processes 4 --concurrency 8
    """
    if reload and not is_inner():
        raise typer.Exit(run_reloading((*COMMAND, *sys.argv[1:]), target.partition(":")[0]))
    flags = node.collect_flags()
    load_without_outbox(flags)
    outbox = load_target(target)
    restart_patched("from partbox.cli import main; main()")
    database = outbox._database.with_flags(flags)
    if reload:
        end_with_outer()
        database = outbox._database.with_flags(flags := flags | _wait_for_handlers(database.settings, subscription))
    # The keywords of the outbox may configure logging, too.
    settings = apply_logging(database.settings)
    if settings.enabled:
        where = f" in module {target.partition(':')[0]!r}, which was imported, or in a module that it imports"
        outbox.handlers.require_handler(subscription, settings, where)
    load = partial(load_configured, target, flags)
    nodes = outbox._make_nodes(database, subscription=subscription, load_handlers=load, dead_to=node.dead_to)
    node.run_nodes(nodes)


def _wait_for_handlers(settings: Settings, subscription: str) -> dict[str, str]:
    # The flag makes events wait for a missing handler, unless a setting decides otherwise.
    unsaid = settings.origins["on_unroutable"] == "default" and settings.unroutable_in(subscription) == "dead"
    return {"on_unroutable": "retry"} if unsaid else {}
