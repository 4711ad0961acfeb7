"""The worker: delivers the events of the partitions that one process owns.

**Where things are.** `engine/` holds all state in memory, and uses no thread, connection, clock, log or handler
(import-linter checks this). Its drivers query it, do the I/O, pass on the answers, and report the results:

    ownership/   claims, drains and loses partitions, at each tick
    poller/      reads the log, fetches parked records and large payloads, and paces and wakes the reading
    runners/     threads and an event loop that call handlers, and the transactor
    saver/       saves cursors and parked rows
    reports/     reports to observers and the log, and writes the process's own row in the database

`worker` builds all parts and connects their signals. `context` has the objects that they share, `session` makes the
connections, and `slot` is the page of memory that the process shares with its supervisor.

**Which file answers a question.**

    which progress may be saved?                  protocol/progress.py; the contents of a save: engine/saves.py
    where does a parked head go when the
      connection is lost?                         engine/partition.py (`reset`, `begin`); engine/claims.py (`loaded`)
                                                  reads it anew; engine/resumption.py remembers that it ran
    which partitions are claimed or drained?      ownership/decision.py; the plan is made by protocol/assignment.py
    which lane runs next?                         engine/ready_queue.py; in a transaction: engine/transaction_queue.py
    when may a suspect run?                       engine/poison.py
    why does a record wait?                       engine/intake.py (`_keep_back`)
    how is a late record found?                   protocol/cursor.py; from which id on: protocol/horizon.py
    how much may be read?                         engine/read_budget.py, through engine/credits.py
    what if a partition is lost while its
      event runs?                                 engine/outcomes.py
    where does a transactional event commit?      runners/transaction.py (`run`)

**One event, from the log to its saved cursor.** The poller takes a credit and polls (`poller.log_poll`, `full_poll`).
The page moves cursors, and its records go into the lanes of their aggregates (`engine.intake`). For a lone runner, the
records of a partition share one lane. A lane with work is ready until a runner takes it (`engine.scheduler`). The
runner goes through the lane event by event and calls the handler (`runners.lane_runner`). Every result that is not
plainly "done" is judged in one place for all kinds of handlers (`runners.settlement`), and recorded in the partition
(`engine.outcomes`). Finished events let the cursor move (`protocol.progress`), and the others become parked rows
(`engine.parked_rows`). The saver sends both in one statement, which writes nothing if the partition is not ours any
more. An event comes back only through a parked row. The record of the row is fetched when its time has come
(`poller.parked_fetch`), and enters its lane like a new record.

**Threads.** The *poller* reads, claims and fetches, and owns every connection but the listener's. On a backlog, one
more thread waits for the next page while the poller hands over the last one (`poller.full_poll`). The *saver* saves,
and the *transactor* runs transactional handlers, each on a connection lent by the poller. The *listener* opens its own
connection, and a new one after each loss. On this connection the poller hears the rings of publishers. *Runners* call
sync handlers: up to `concurrency` threads, started when there is work. An *event loop* in a thread of its own runs
`async def` handlers.

**The lock.** One lock, `engine.state.EngineState.lock`, guards everything that the engine holds. Only verbs take the
lock: each call of a driver is a method of a façade (`engine.claims`, `credits`, `intake`, `parked_scheduler`,
`scheduler`, `outcomes`, `saves`, `transactions`), and is one critical section. Only a page has several, each for some
partitions. No handler runs and no statement is sent inside a critical section. Other locks are independent of this one:
the locks of the saver's and the transactor's connections, of the circuit of an endpoint, and of the types without a
handler.

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
read again (⛨ DESIGN 4; `engine.resumption`).
"""
