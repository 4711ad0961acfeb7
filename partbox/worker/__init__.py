"""Delivers the events of the partitions that one process owns.

**What is where.** `engine/` has all that is in memory: partitions, their cursors and lanes, parked rows, and what may
be saved. It knows no clock, connection, log or handler, and import-linter keeps it so. Around it stand its drivers:

    ownership/   claims, drains and loses partitions, at each tick
    poller/      reads the log, fetches parked records and large payloads; what wakes it, and when it looks again
    runners/     threads and an event loop that run handlers; settlement of what became of each event
    saver/       saves cursors and parked rows
    reports/     tells observers and the log, and writes the process's own row in the database

`worker` makes all parts, gives them what they share (`context`), and says who listens to whom.

**One event, from the log to its saved cursor.** The poller asks for what is new (`poller.log_poll`, `full_poll`), and
the intake puts each record into the lane of its aggregate (`engine.intake`): lanes keep the order; a lone runner is
given those of a partition in one line. A lane with something to do is ready until a runner takes it (`engine.runs`).
The runner walks the lane, event by event (`runners.lane_runner`): it looks up the endpoint, and calls the handler.
What the result means is judged in one place, whatever the kind of the handler (`runners.settlement`), and noted in the
event's partition (`engine.outcomes`). What is done moves the cursor that may be saved (`protocol.progress`); what is
not done becomes a parked row (`engine.parked_rows`). The saver sends both in one statement, which writes nothing if
the partition is not ours any more. No step comes back to an earlier one but by a parked row, whose record is fetched
when its time has come (`poller.parked_fetch`), and goes into its lane like a new one.

**Threads.** The *poller* has all connections but one, and reads, claims and fetches; on a backlog it has one thread
more for a moment, which waits for the next page while the poller hands over the last (`poller.full_poll`). The *saver*
borrows one of them, and saves. The *listener* makes the other one, anew when it is lost; on it the poller hears who
publishes while it waits (`poller.listener`, `poller.wakeup`). *Runners* run sync handlers; there are as many as
`concurrency` says, made when they are needed. An *event loop* in a thread of its own runs async handlers and lists for
them, and one more thread, the *transactor*, the transactional handlers, with a connection that it borrows too.

**The lock.** `engine.state.EngineState.lock` guards all that the engine holds. It is held for moments, never while a
handler runs or a statement is on its way. "Lock held" in a docstring means this one.

**Without the lock** are read: by the runner of a lane the head of its queue, from which it takes events while others
may take from the other end (`engine.partition.Lane.take_rest`); a partition's `phase`, `stopping` and `incarnation`,
which tell the runner to stop, or that the partition was read anew, and are looked at again under the lock where it
matters; a partition's `cursor`, which is the poller's own; whether anything waits for the transactor, or for a turn;
how many partitions there are, and whether a loss has unsettled the last tick (`engine.claims`); and the page of memory
that is shared with the supervisor (`slot`), each place of which one side writes.

**A lost connection** ends one incarnation of all partitions and begins the next: all connections are closed, all that
was read is forgotten, and reading begins anew from the saved cursors. What was done and not saved, or runs, is
remembered by id and event id, and is not started again when it is read again (`engine.reconnect`).
"""
