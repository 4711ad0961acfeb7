"""A node: worker processes, the supervisor that keeps them alive, and their membership in the cluster.

**The supervisor.** A supervisor serves one subscription of one database. It spawns worker processes, renews their
leases, kills hung processes, replaces dead ones, plans the owners of partitions, purges, and stops everything in order.
It delivers nothing itself. `partbox worker` runs one supervisor for each of its databases (`nodes`, `foreground`), with
metrics and pages beside them (`serving`) and notifications to systemd (`systemd`).

**Threads of a node's process.** The *main thread* starts the supervisors, waits for signals (`signals`), and notifies
systemd. Each supervisor has one thread, the *loop* (`loop`), which owns the worker processes (`worker_pool`) and the
membership (`membership`). No other thread changes them. *Purging* has a thread of its own (`purging`), and so have the
connection pool of the membership (`membership_pool`) and the HTTP server.

**Access from other threads.** Signal handlers call `stop` and `kill`, and may have interrupted the holder of any lock.
So both methods take none: they write to `Shutdown` and to a pipe (`WakePipe`), and the loop acts. Health checks read
`Supervisor.vitals`, which never waits. Only the list of processes has a lock (`WorkerPool.list_handles`).

**The life of a worker process.**

1. *Spawned* (`worker_handle`, `job_pickling`) with a job and a slot of shared memory (`worker.slot`), and ignoring
   Ctrl-C. The process begins with partbox's own `sys.path`, takes the application's path together with the job, and
   then loads the handlers (`child`).
2. *Registered.* Once the process ticks, the membership inserts its row and writes the identity into its slot. From then
   on partitions may be assigned to the process, which claims them by itself.
3. *Vouched for.* The process writes into its slot when it last polled, read and saved, and since when a handler runs.
   Four times a second the loop judges these signs (`protocol.lease`). While they are good, one statement per heartbeat
   renews all rows of the node, and the slot says until when the lease may be trusted. The process starts no handler
   after that time, even if its supervisor is gone.
4. *Given up.* A process is killed if it shows no life for two leases beyond the first, or if it neither reads nor saves
   although the node reaches the database.
5. *Drained.* When the node stops or scales down, the slot asks the process to release everything. After the drain
   timeout the process is killed.
6. *Buried.* When the process has ended, its row is deleted at once and its partitions are free. `exit_codes` judges the
   exit code: a crashed process is replaced after a pause (`restart_backoff`), a worker that cannot work ends the node,
   and a database that cannot be worked for is tried again if there are several (`database_retry`).

**Other nodes.** Each node reads the leases of all nodes (`membership`), buries instances whose lease is over
(`protocol.lease`), and plans when an owner is gone or the shares are uneven (`planner`). No node is special.

**Embedded.** `outbox.worker()` runs the threads of a worker in the application's own process (`embedded`), with the
same membership and without a supervisor.
"""
