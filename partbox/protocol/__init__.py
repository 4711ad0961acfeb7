"""The pure rules of delivery: functions and data without I/O, threads or clocks.

**A cursor is a PostgreSQL snapshot.** The log is never updated. The consumed part of a partition is described by one
small row: a snapshot S, a last id L and a floor F.

    id <= L and xid visible in S       consumed: done, or parked
    id >  L                            not consumed: *new*
    id <= L and xid not visible in S   not consumed: it had not committed at S and arrives *late*
    id <= F                            no such record will *become* visible; those that are visible may be unread

Records are ordered by id. A transaction draws its ids before it commits, so a late record can have any id below L. The
snapshot finds late records, so the log needs no status column, and readers need not wait for the oldest transaction.

**Pages** (`horizon`, `cursor`). A poll returns a page: the snapshot N at which the log was read, all late records of
each partition, and as many new records as there is room for. A partition that was just claimed is *fresh*: it is polled
alone, from its own (S, L, F). After an uncut page, the partition takes part in the shared poll with the page that it
has. From the end of that poll on, the partition is in *lockstep*: it shares its page with the others. The modules
`quick_poll` and `sweep` describe cheaper polls for many partitions at once.

A page is *cut* if a partition has too many late records, or if the range in which to search for late records is too
long. The first piece is then delivered. The partition's new records of that page are discarded, because the rest of the
page may contain records that come before them. S, L and F stay as they are. The snapshot T of the first piece is kept,
and each later piece reads the records visible in T from the end of the previous piece on. At the end of the range, S
becomes T. Every poll is therefore bounded, and every poll makes progress.

**The horizon** (`horizon`) bounds the search for late records. A *fence* (U, G) states that every transaction with xid
> U draws only ids > G. To make a fence, read G, the last id drawn, and only then U, the last transaction id assigned. A
snapshot lists the transactions in progress. When a transaction is first seen in a list, its *bound* is fixed: the G of
the newest fence with U below its xid. The transaction will never write an id at or below its bound. A running
transaction with an xid at or above xmax(S) is not in the list of S. Only a fence with U < xmax(S) says something about
it, so the newest of these fences is kept (`Horizon.share_page`).

**The floor** of a page is the smallest bound of the transactions that N lists and of the transactions that had no xid
yet at N (xmax(N) and above). The floor is saved with the page, because the next owner of the partition does not know
the bounds. The present owner's next search counts only the bounds of listed transactions that have *ended* since. A
transaction that stays open thus neither stalls delivery, nor widens the search, nor causes every next page to be cut.

**Progress, and what a save may contain** (`progress`). A record is finished if its handler is done, or if the record is
parked in this save or an earlier save (`parking`). For pages P1…Pm, read at N1…Nm with floors F1…Fm:

    L*  the last id of the finished prefix of all new records, in id order
    k   the greatest number such that in *every* page 1…k each late record with id <= L* is finished
    save (N_k, L*, F_k): the floor of that page, never a later floor

Late records above L* may be unfinished, because the saved cursor treats them as new.

**The bell** (`bell`) affects latency only (⛨): neither the reading of records nor the contents of a save depend on it.

**One life.** All this holds for one life of the server. After a crash that lost a tail of the log, ids and xids may be
reused. After a lost connection, fences, bounds and pages are dropped, and reading resumes at the saved cursor."""
