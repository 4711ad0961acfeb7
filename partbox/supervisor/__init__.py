"""A node: worker processes, the supervisor that keeps them alive, and their membership in the cluster.

**What a supervisor does.** It serves one subscription of one database. It spawns worker processes, renews their leases,
kills those that hang, replaces those that die, plans who owns which partition, purges, and stops everything in order.
It delivers nothing itself. `partbox worker` runs one supervisor for each of its databases (`nodes`, `foreground`), with
metrics and pages beside them (`serving`) and notices to systemd (`systemd`).

**Threads of the node's process.** The *main thread* starts the supervisors, waits for signals (`signals`), and notifies
systemd. Each supervisor has one thread, the *loop* (`loop`): it owns the worker processes (`worker_pool`) and the
membership (`membership`), and no other thread changes them. *Purging* has a thread of its own (`purging`), and so have
the connection pool of the membership (`membership_pool`) and the HTTP server.

**Touching them from elsewhere.** `stop` and `kill` are called by signal handlers, which may have interrupted the holder
of any lock. So they take none: they write to `Shutdown` and to a pipe (`WakePipe`), and the loop acts. Health checks
read `Supervisor.vitals`, which never waits. The list of processes alone has a lock (`WorkerPool.list_handles`).

**The life of a worker process.**

1. *Spawned* (`worker_handle`, `job_pickling`) with a job, a slot of shared memory (`worker.slot`) and deaf to Ctrl-C.
   It begins with partbox's own `sys.path` and takes the application's together with the job; then it loads the
   handlers (`child`).
2. *Registered.* Once it ticks, the membership inserts its row and writes the identity into its slot. From then on it
   may be assigned partitions, and claims them by itself.
3. *Vouched for.* It writes when it last polled, read and saved, and since when a handler runs, into its slot. Four
   times a second the loop judges these signs (`protocol.lease`). While they are good, one statement per heartbeat
   renews all rows of the node, and the slot says until when the lease may be trusted: the process starts no handler
   after that, whatever becomes of its supervisor.
4. *Given up.* If it shows no life for two leases beyond the first, or neither reads nor saves though the node reaches
   the database, it is killed.
5. *Drained.* When the node stops or scales down, the slot tells it to release everything; after the drain timeout it is
   killed.
6. *Buried.* When it has ended, its row goes at once and its partitions are free. `exit_codes` judges its exit code: a
   crash is replaced after a pause (`restart_backoff`), a worker that cannot work ends the node, and a database that
   cannot be worked for, one of several, is tried again (`database_retry`).

**The others.** Each node looks at the leases of all (`membership`), buries whoever's is over (`protocol.lease`) and
plans when an owner is gone or the shares are uneven (`planner`). No node is special.

**Embedded.** `outbox.worker()` runs the threads of a worker in the application's own process (`embedded`): with the
same membership, and without a supervisor.
"""
