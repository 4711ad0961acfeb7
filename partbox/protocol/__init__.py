"""Pure decisions: plain data in, plain data out; no clock, no database, no threads.

This is what the rules of the cursor rest on.

**A cursor is a PostgreSQL snapshot.** The log is never updated. What has been consumed of a partition is one small
row: a snapshot S, a last id L and a floor F.

    id <= L and xid visible in S       consumed: done, or parked
    id >  L                            not consumed: *new*
    id <= L and xid not visible in S   not consumed: it had not committed at S and arrives *late*
    id <= F                            nothing there will *become* visible any more; it need not have been read

The order of records is that of their ids. Ids are drawn before their transaction commits, so a late record may lie
anywhere below L; the snapshot finds it, without a status column and without waiting for the oldest transaction.

**Pages** (`horizon`, `cursor`). A poll returns a page: the snapshot N at which it was read, all late records of each
partition, and as many new ones as there is room for. A partition just claimed is *fresh*: polled alone, from its own
(S, L, F). After an uncut page it takes part in the shared poll from the page it has, and after that poll it is in
*lockstep*: it has the page that all share. A page is *cut* when there are too many late records, or too long a range
to search for them. Then the piece is delivered, the partition's new records of that page are discarded (what precedes
them may be in the rest), and (S, L, F) stay. The snapshot T of the first piece is remembered: later pieces read what
is visible in T, from where the last piece ended. When the range is through, T becomes S. So every poll is bounded,
and each one makes progress.

**The quick poll** (`quick_poll`). A partition in lockstep that has all that the shared page S sees is *caught up*: what
is unread of it is exactly what S does not see. One scan of a range of ids finds that for all that are caught up,
however many they are, and S moves on for all of them without touching one of which nothing came. Who is behind keeps
the page that it has, and is read in full.

**The sweep** (`sweep`). Partitions with a backlog at about the same place are not searched one by one in a full poll:
one scan in the order of ids brings the next records of all of them. What comes of one is still the first of its records
above L. A scan that stopped before the end may have left records of any of them, so none counts as read to the end.

**The horizon** (`horizon`) bounds the search for late records. A *fence* (U, G) says that any transaction with
xid > U draws only ids > G. It is made by reading G, the ids drawn so far, and only then U, the last transaction id
given out. A snapshot lists the transactions in progress. When one is first seen, its *bound* is fixed: the G of the
newest fence with U below its xid. It will never write at or below its bound. The trap: xmax of a snapshot is one past
the highest *completed* xid, so a running transaction may have an xid at or above xmax and then is not listed. "xid >=
xmax(S) began after S" is therefore false; only a fence with U < xmax(S) says something about such a transaction, which
is why the newest of those is kept.

**The floor** of a page is the least bound of what N lists and of what had no xid yet at N (xmax(N) and above). It is
saved with the page, because whoever takes over has no memory of the bounds. The owner's own next search counts only
the bounds of listed transactions that have *ended* by then: one that stays open neither stalls delivery, nor widens
the search, nor cuts every next page again. After an uncut page that left room, L is raised to the floor, so that
quiet partitions hold back neither pruning nor purge.

**Progress, and what may be saved** (`progress`). A record is finished when its handler is done, or when it is parked
in this save or an earlier one (`parking`). Of pages P1…Pm, read at N1…Nm with floors F1…Fm:

    L*  the last id of the finished prefix of all new records, in id order
    k   the greatest such that in *every* page 1…k each late record with id <= L* is finished
    save (N_k, L*, F_k): that page's floor, never a later one

Late records above L* may be unfinished: for the saved cursor they are new.

**The bell** (`bell`). An idle worker raises a flag before it sleeps, and who publishes and finds it up rings. It
bears on latency alone (⛨): what is read, and what may be saved, does not depend on it.

**One life.** All this holds for one life of the server: ids and xids may be reused after a crash that lost a tail.
When a connection is lost, fences, bounds and pages are forgotten, and reading goes on from the saved cursor.

The statements are in `db.delivery.records` and `db.delivery.cursors`; `worker.poller` polls and `worker.saver` saves.
"""
