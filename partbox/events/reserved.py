"""Names that partbox keeps for itself."""

from typing import Final

GLOBAL: Final = "__GLOBAL__"
"""The aggregate type of an event that names none."""

TASK: Final = "partbox-task"
"""The aggregate type of a task's events."""

PREFIX: Final = "partbox-"
"""Headers that begin with it are not the publisher's, and not shown among an event's headers."""

IDEMPOTENCY_KEY: Final = PREFIX + "idempotency-key"
RAW: Final = PREFIX + "raw"
"""The payload is bytes that no codec has made (see partbox.codecs)."""
