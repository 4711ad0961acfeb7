"""The peers, one file each."""

from partbox_lab.peers.outboxes.graphile import Graphile
from partbox_lab.peers.outboxes.partbox import Partbox
from partbox_lab.peers.outboxes.partbox_lists import PartboxLists
from partbox_lab.peers.outboxes.pgboss import PgBoss
from partbox_lab.peers.outboxes.pgq import PgQ
from partbox_lab.peers.outboxes.pgqueuer import PgQueuer
from partbox_lab.peers.outboxes.procrastinate import Procrastinate
from partbox_lab.peers.outboxes.textbook import Textbook
from partbox_lab.peers.peer import Peer

PEERS: tuple[type[Peer], ...] = (Partbox, PartboxLists, Textbook, PgQ, Procrastinate, PgQueuer, Graphile, PgBoss)
