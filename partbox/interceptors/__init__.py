"""Interceptors: code that runs around every handler of an outbox.

An interceptor is either an object with any of

    before(event)               after(event, outcome, error)
    before_batch(events)        after_batch(events, outcomes, error)

or a callable that takes the event and returns a context manager, such as a function under `contextlib.contextmanager`.
The interceptor that was registered first is the outermost: `before` runs in order of registration, `after` in reverse.

- An exception of `before` counts as an exception of the handler. Neither the handler nor inner interceptors run then.
- `after` runs for each event whose `before` completed, or that has no `before`. It gets the returned outcome and None,
  or None and the exception. Cancellation is reported too, and goes on. An exception of `after` is logged and changes
  nothing.
- For a batch handler, an object without `before_batch` or `after_batch` has `before` and `after` called for each event,
  in order and in reverse. `outcomes` has one entry per event: the list of the handler if its length fits (an exception
  in the list is the `error` of that event's `after`), None for each event if the length is wrong, or the same outcome
  for each event if the handler returned no list. Handlers of single events never call the batch methods.
- A context manager is entered for each event, in order for a batch. An exception of it counts as an exception of the
  handler. If it swallows an exception, the event is done, and for a batch the whole list.
- `async def` methods and async context managers work only around `async def` handlers, plain ones around both kinds.
"""

from partbox.interceptors.wrap import check, must_be_awaited, wrap

__all__ = ["check", "must_be_awaited", "wrap"]
