"""Interceptors: code that runs around every handler of an outbox.

An interceptor is either an object with any of

    before(event)               after(event, outcome, error)
    before_batch(events)        after_batch(events, outcomes, error)

or a callable that takes the event and returns a context manager, such as a function under `contextlib.contextmanager`.
The first registered is the outermost: `before` runs in the order of registration, `after` in reverse.

- An exception of `before` counts as the handler's: neither the handler nor what lies further inside runs.
- `after` runs for each event whose `before` completed, or that has none, with what came from inside: the outcome
  returned and None, or None and the exception. Cancellation is told too, and goes on. What `after` raises is logged
  and changes nothing.
- A batch handler falls back on `before` and `after` of each event, in order and in reverse, where an object lacks
  `before_batch` or `after_batch`. `outcomes` has one entry per event: the handler's list, if it is of this length (an
  exception in it is the `error` of that event's `after`); None for each, if it is not; an outcome that is no list is
  that of each event. The batch methods mean nothing to handlers of single events.
- A context manager is entered per event, a batch's in order. What it raises counts as the handler's; an exception that
  it swallows did not happen: the event (of a batch: the whole list) is done.
- `async def` methods and async context managers go around `async def` handlers only, plain ones around both kinds.
"""

from partbox.interceptors.wrap import check, must_be_awaited, wrap

__all__ = ["check", "must_be_awaited", "wrap"]
