"""One file a peer."""

from peers.outboxes.graphile import Graphile
from peers.outboxes.partbox import Partbox
from peers.outboxes.pgboss import PgBoss
from peers.outboxes.pgq import PgQ
from peers.outboxes.pgqueuer import PgQueuer
from peers.outboxes.procrastinate import Procrastinate
from peers.outboxes.textbook import Textbook
from peers.peer import Peer

PEERS: tuple[type[Peer], ...] = (Partbox, Textbook, PgQ, Procrastinate, PgQueuer, Graphile, PgBoss)
