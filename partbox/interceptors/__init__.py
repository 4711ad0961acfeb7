"""Interceptors: code that runs around every handler of an outbox.

An interceptor is an object with `before(event)`, `after(event, outcome, error)`, `before_batch(events)` or
`after_batch(events, outcomes, error)`, or a callable that takes the event and returns a context manager. The
interceptor that was registered first is the outermost: its `before` runs first, and its `after` last.

- An exception of `before` counts as an exception of the handler. Neither the handler nor inner interceptors run then.
- `after` runs for each event whose `before` completed, or that has no `before`. It gets the returned outcome and None,
  or None and the exception, which may be a cancellation. An exception of `after` is logged and changes nothing.
- For a batch handler, an object without `before_batch` or `after_batch` has `before` and `after` called for each event.
- A context manager is entered for each event. An exception of it counts as an exception of the handler. If it swallows
  an exception, the event is done, and for a batch the whole list.
- `async def` methods and async context managers work only around `async def` handlers, plain ones around both kinds."""

from partbox.interceptors.wrap import check_interceptor, must_be_awaited, wrap_call

__all__ = ["check_interceptor", "must_be_awaited", "wrap_call"]
