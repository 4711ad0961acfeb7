"""Delivers the events of the partitions that one process owns.

**What is where.** `engine/` holds all that is in memory, and has no thread, connection, clock, log or handler
(import-linter keeps it so). Around it stand its drivers, which ask it, do the I/O, answer, and report what came back:

    ownership/   claims, drains and loses partitions, at each tick
    poller/      reads the log, fetches parked records and large payloads; what wakes it, and when it looks again
    runners/     threads and an event loop that call handlers, and the transactor
    saver/       saves cursors and parked rows
    reports/     tells observers and the log, and writes the process's own row in the database

`worker` makes them all and says who listens to whom; `context` is what they share, `session` makes the connections, and
`slot` is the page of memory that the process shares with its supervisor.

**Which file answers what.**

    who decides what may be saved?                protocol/progress.py; what a save has: engine/saves.py
    what becomes of a parked head when the
      connection is lost?                         engine/partition.py (`reset`, `begin`); it is read anew by
                                                  engine/claims.py (`loaded`); that it ran: engine/reconnect.py
    which partitions are claimed or drained?      ownership/decision.py; who is to have which: protocol/assignment.py
    which lane runs next?                         engine/ready_queue.py; in a transaction: engine/transaction_queue.py
    when may a suspect run?                       engine/poison.py
    what makes a record wait?                     engine/intake.py (`_keep_back`)
    how is a late record found?                   protocol/cursor.py; from which id on: protocol/horizon.py
    who says how much may be read?                engine/read_budget.py, asked by engine/credits.py
    what becomes of an event whose partition
      was lost while it ran?                      engine/outcomes.py
    where does a transactional event commit?      runners/transaction.py (`run`)

**One event, from the log to its saved cursor.** The poller asks for credit and polls (`poller.log_poll`, `full_poll`).
The page moves cursors, and its records go into the lanes of their aggregates (`engine.intake`); a lone runner has those
of a partition in one line. A lane with something to do is ready until a runner takes it (`engine.runs_key`). The runner
walks it event by event and calls the handler (`runners.lane_runner`). A result that is not plainly "done" is judged in
one place for all kinds of handlers (`runners.settlement`), and noted in the partition (`engine.outcomes`). What is done
lets the cursor move (`protocol.progress`), the rest becomes parked rows (`engine.parked_rows`). The saver sends both in
one statement, which writes nothing if the partition is not ours any more. Nothing goes back but through a parked row,
whose record is fetched when its time has come (`poller.parked_fetch`), and which enters its lane like a new one.

**Threads.** The *poller* reads, claims and fetches, and owns every connection but the listener's; on a backlog one more
thread waits for the next page while it hands over the last (`poller.full_poll`). The *saver* saves, and the
*transactor* runs transactional handlers, each on a connection that the poller lends it. The *listener* makes its own,
anew when it is lost, and the poller hears on it who publishes. *Runners* call sync handlers: up to `concurrency` of
them, made when there is work. An *event loop* in a thread of its own runs `async def` handlers.

**The lock.** One lock, `engine.state.EngineState.lock`, guards all that the engine holds. Only verbs take it: what
a driver asks or answers is one of a façade (`engine.claims`, `credits`, `intake`, `take_next_trials`, `runs_key`,
`outcomes`, `saves`, `transactions`), each one critical section; only a page has several, of some partitions each. No
handler runs and no statement is sent inside one. Other locks have nothing to do with it: those of the connections of
saver and transactor, of the circuit of an endpoint, and of the types that nobody handles.

**Without the lock** are read or written, for it would be taken for each event, or because one thread alone writes:

    the head of a lane's queue      its runner takes from the left, all others from the right (`Lane.take_rest`)
    `done`, `current`, `started`    of a lane: its runner's; `done` is taken over when the lane's turn ends
    `phase`, `is_stopping`,            of a partition: asked before each event, so that a runner stops early; a verb
    looks
      `incarnation`, `remembered`   again where it matters
    `cursor`, the budget's means    the poller's own: it moves cursors with the lock, and looks at them without
    `claims.count`, `claims.ended_event`, `credits.is_starved`, `saves.has_waiting_suspects`, `transactions.waiting`,
    `is_forked`,
      `version` of the engine       one value each, perhaps out of date, which the next look sees
    the slot                        each place of it is written by one side

**A lost connection**, but for the listener's, ends the incarnation of all partitions. All are closed, all that was read
is forgotten, and reading begins anew from the saved cursors, under new epochs. What was done and not saved, or runs, is
remembered by id and event id, and not started again when it is read again (⛨ DESIGN 4; `engine.reconnect`).
"""
