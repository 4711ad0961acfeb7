"""What a handler under test calls, and its handlers of every kind."""

import asyncio
import threading

OPEN = "is open: its events are deferred"


class Downstream:
    """Raises as long as it is down, once per number and call; keeps what came through."""

    def __init__(self, error):
        self.error, self.down, self.calls, self.through = error, True, [], []
        self._lock = threading.Lock()

    def __call__(self, event):
        with self._lock:
            self.calls.append((event.aggregate_id, event.payload["number"], event.attempt))
            if self.down:
                raise self.error.with_traceback(None)
            self.through.append((event.aggregate_id, event.payload["number"]))


def in_order(through, keys):
    return all(
        numbers == sorted(numbers)
        for key in keys
        for numbers in [[number for found, number in through if found == key]]
    )


def registered(desk, kind, call, event_type, *, max_size=10, **options):
    async def later(event):
        await asyncio.sleep(0)
        call(event)

    async def listed_later(events):
        await asyncio.sleep(0)
        return listed(events)

    def listed(events):
        ends = []
        for event in events:
            try:
                ends.append(call(event))
            except Exception as error:
                ends.append(error)
        return ends

    match kind:
        case "sync":
            desk.outbox.register(call, event_type, **options)
        case "async":
            desk.outbox.register(later, event_type, **options)
        case "list":
            desk.outbox.on_batch(event_type, max_size=max_size, **options)(listed)
        case "async list":
            desk.outbox.on_batch(event_type, max_size=max_size, **options)(listed_later)
        case "transactional":
            desk.outbox.register(lambda event, conn: call(event), event_type, transactional=True, **options)
