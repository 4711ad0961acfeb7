"""The acts of operators, to be listed."""

from partbox.db.operator import actions
from partbox.db.operator.actions import ACTION_WORDS, OperatorAction
from partbox.db.operator.dead import time_span
from partbox.db.session import require
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError, Bound
from partbox.operations.session import OperatorVerbs
from partbox.text.printing import printable_line
from partbox.text.wording import hint

KNOWN_ACTIONS = sorted({*ACTION_WORDS, *(words.rpartition(" ")[2] for words in ACTION_WORDS)})


class Actions(OperatorVerbs):
    """Acts of operators on an outbox, noted as they were done, and kept for `retain_actions`."""

    _noun = "actions"

    def list(
        self,
        limit: int = 100,
        *,
        action: str | None = None,
        subscription: str | None = None,
        since: Bound | None = None,
        until: Bound | None = None,
    ) -> list[OperatorAction]:
        """At most `limit` acts that changed something, the newest first.

        `action`: such as "dead replay", or "replay" for those of dead records and of subscriptions. Done at `since` or
        later, and before `until`: times, or lengths such as "2h", which ended now. `subscription` may be gone by now.
        PartboxError for what cannot be meant, psycopg.Error where the database cannot be reached.
        """
        limit, since, until = arguments.limit(limit), arguments.bound("since", since), arguments.bound("until", until)
        if action is not None and action not in KNOWN_ACTIONS:
            raise ArgumentError(
                "action", f"{printable_line(str(action))!r} is none: {hint(str(action), KNOWN_ACTIONS)}"
            )
        if subscription is not None:
            arguments.text("subscription", subscription)
        with self._session() as conn:
            since, until = time_span(conn, self._schema, since, until)
            found = actions.list_actions(
                conn, self._schema, limit, action=action, subscription=subscription, since=since, until=until
            )
            if subscription is not None and not found:
                require(conn, self._schema, subscription)
        return found
