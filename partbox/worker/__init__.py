"""The worker: delivers the events of the partitions that one process owns.

**Where things are.** `engine/` holds all state in memory, and uses no thread, connection, clock, log or handler
(import-linter checks this). The other packages are its drivers: they query the engine, do the I/O, pass on the answers,
and report the results.

**One event, from the log to its saved cursor.** The poller reads a page of the log. The page moves cursors, and its
records go into the lanes of their aggregates. For a lone runner, the records of a partition share one lane. A lane with
work is ready until a runner takes it. The runner goes through the lane event by event and calls the handler. Every
result that is not plainly "done" is judged in one place for all kinds of handlers (`runners.settlement`), and recorded
in the partition. Finished events let the cursor move, and the others become parked rows. The saver sends both in one
statement, which writes nothing if this process does not own the partition any more. An event comes back only through a
parked row.

**Threads.** The *poller* reads, claims and fetches, and owns every connection but the listener's. The *saver* saves,
and the *transactor* runs transactional handlers, each on a connection lent by the poller. The *listener* opens its own
connection, on which the poller hears the rings of publishers. *Runners* call sync handlers: up to `concurrency`
threads, started when there is work. An *event loop* in a thread of its own runs `async def` handlers.

**The lock.** One lock, `engine.state.EngineState.lock`, guards everything that the engine holds. Each call of a driver
is a verb: a method of a façade (such as `engine.claims`) that takes the lock and is one critical section. Only a page
has several, each for some partitions. No handler runs and no statement is sent inside a critical section. All other
locks are independent of this lock.

**Without the lock.** The values below are read or written without the lock, because it would be taken for each event,
or because only one thread writes them:

    the head of a lane's queue      its runner takes from the left, all others from the right (`Lane.take_rest`)
    `done`, `current`, `started`    of a lane, written by its runner; `done` is taken over when the lane's turn ends
    `phase`, `is_stopping`,         of a partition, read before each event, so that a runner stops early; a verb reads
      `incarnation`, `remembered`   them again where it matters
    `cursor`, the budget's means    the poller's own: it moves cursors with the lock, and reads them without
    `claims.count`, `ended_event`, `credits.is_starved`, `saves.has_waiting_suspects`, `transactions.waiting`,
      `is_forked` and `version`
      of the engine                 one value each, perhaps out of date, which the next read corrects
    the slot                        each place of it is written by one side

**A lost connection**, except for the listener's, ends the incarnation of all partitions. All connections are closed,
everything that was read is forgotten, and reading begins anew from the saved cursors, under new epochs. Events that
were finished and not saved, or are running, are remembered by id and event id, and are not started again when they are
read again (`engine.resumption`)."""
