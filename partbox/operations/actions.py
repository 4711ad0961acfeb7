"""The log of operator actions as an API."""

from partbox.db.operator import actions
from partbox.db.operator.actions import ACTION_WORDS, OperatorAction
from partbox.db.operator.dead import resolve_time_span
from partbox.db.session import require_subscription
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError, Bound
from partbox.operations.session import OperatorCommands
from partbox.text.printing import shorten_line
from partbox.text.wording import format_hint

# Valid values of `action`: each command, and each verb alone, which stands for all commands that end with it.
KNOWN_ACTIONS = sorted({*ACTION_WORDS, *(words.rpartition(" ")[2] for words in ACTION_WORDS)})


class Actions(OperatorCommands):
    """The audit log of the operator commands that have changed an outbox. An action is kept for `retain_actions`."""

    _group_name = "actions"

    def list(
        self,
        limit: int = 100,
        *,
        action: str | None = None,
        subscription: str | None = None,
        since: Bound | None = None,
        until: Bound | None = None,
    ) -> list[OperatorAction]:
        """Return at most `limit` logged operator actions that changed something, newest first.

        `action` is a command such as "dead replay", or a verb such as "replay" for all nouns. `since` (inclusive) and
        `until` (exclusive) are times, or lengths such as "2h" for two hours ago. The subscription may be dropped by
        now, but an unknown one raises PartboxError."""
        limit, since, until = (
            arguments.check_limit(limit),
            arguments.parse_bound("since", since),
            arguments.parse_bound("until", until),
        )
        if action is not None and action not in KNOWN_ACTIONS:
            raise ArgumentError(
                "action", f"{shorten_line(str(action))!r} is none: {format_hint(str(action), KNOWN_ACTIONS)}"
            )
        if subscription is not None:
            arguments.check_text("subscription", subscription)
        with self._open_session() as conn:
            since, until = resolve_time_span(conn, self._schema, since, until)
            found = actions.list_actions(
                conn, self._schema, limit, action=action, subscription=subscription, since=since, until=until
            )
            if subscription is not None and not found:
                require_subscription(conn, self._schema, subscription)
        return found
