"""`partbox cancel`: cancels a delayed event before its time."""

from typing import Annotated

import typer

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import ActionOptions, option, with_option_groups
from partbox.cli.shell.output import print_answer
from partbox.db.session import open_session
from partbox.errors import PartboxError
from partbox.publish import cancellation

EventId = Annotated[str | None, typer.Argument(metavar="EVENT_ID", help="The id of the event (UUID).")]


@with_option_groups
def cancel(
    *,
    event: EventId = None,
    key: Annotated[str | None, option("KEY", "The event with this idempotency key, instead of EVENT_ID.")] = None,
    outbox: ActionOptions,
) -> None:
    """Cancel a delayed event whose time has not come: no handler of any subscription runs it.

    The command fails, and changes nothing, if the time has come by the database's clock, or if there is no such delayed
    event.

    Example: partbox cancel 01a2201a-0da4-758e-9625-8cffb092df9c
    """
    settings = outbox.load_settings()
    with open_session(lambda: build_dsn(settings), settings, "partbox cancel") as conn, conn.transaction():
        in_time = cancellation.cancel(conn, settings.schema_name, event, key)
    if not in_time:
        remedy = f"`partbox find {event or key}` tells what became of it"
        raise PartboxError(
            f"{event or key} is not cancelled: there is no such delayed event, or its time has come: {remedy}"
        )
    print_answer(outbox.json, {"cancelled": True}, f"cancelled {event or key}: it never runs")
