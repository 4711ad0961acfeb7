"""A node: worker processes, the supervisor that keeps them alive, and their membership in the cluster.

**The supervisor.** A supervisor serves one subscription of one database. It spawns worker processes, renews their
leases, kills hung processes, replaces dead ones, plans the owners of partitions, purges, and stops everything in order.
It delivers nothing itself. `partbox worker` runs one supervisor for each of its databases.

**Threads of a node's process.** The *main thread* starts the supervisors, waits for signals, and notifies systemd. Each
supervisor has one thread, the *loop*, which owns the worker processes and the membership. No other thread changes them,
and only the list of processes has a lock. Signal handlers call `stop` and `kill`, and may have interrupted the holder
of any lock. So both methods take none: they write to `Shutdown` and to a pipe (`WakePipe`), and the loop acts.

**The life of a worker process.**

1. *Spawned* with a job and a slot of shared memory (`worker.slot`), and ignoring Ctrl-C.
2. *Registered.* Once the process ticks, the membership inserts its row and writes the identity into its slot. From then
   on partitions may be assigned to the process, which claims them by itself.
3. *Vouched for.* The process writes its signs of life into its slot, and the loop judges them four times a second
   (`protocol.lease`). While they are good, one statement per heartbeat renews all rows of the node, and the slot says
   until when the lease may be trusted. The process starts no handler after that time, even if its supervisor is gone.
4. *Given up.* A process is killed if it shows no life for two leases beyond the first, or if it neither reads nor saves
   although the node reaches the database.
5. *Drained.* When the node stops or scales down, the slot asks the process to release everything. After the drain
   timeout the process is killed.
6. *Buried.* When the process has ended, its row is deleted at once and its partitions are free. A crashed process is
   replaced after a pause, and a worker that cannot work ends the node.

**Other nodes.** Each node reads the leases of all nodes, buries instances whose lease is over (`protocol.lease`), and
plans when an owner is gone or the shares are uneven. No node is special."""
