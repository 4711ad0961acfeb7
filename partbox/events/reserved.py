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

FAILED: Final = PREFIX + "failed"
"""An import gives it to an event that had failed, beside `NEVER`: only both mean that it is dead from the start."""

NEVER: Final = 9_223_371_331_199_999_999
"""`available_at` of a record that had failed when it was imported, in microseconds since 2000, and as text: the last
finite time of PostgreSQL, which publishers may give too."""
NEVER_TEXT: Final = "294276-12-31 23:59:59.999999Z"
