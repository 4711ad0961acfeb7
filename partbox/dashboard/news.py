"""The news of a subscription as the page tells it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from uuid import UUID

from partbox.dashboard.faces import PageFace
from partbox.dashboard.texts import cut
from partbox.db.inspect.stats import Cluster, Instance
from partbox.operations.stats.happenings import News, changes, partitions

KEPT = 40


class PageNews(News):
    """The last happenings, found by comparing two looks at the subscription."""

    def __init__(self) -> None:
        super().__init__(KEPT)
        self._last: Cluster | None = None
        self._faces: Mapping[UUID, PageFace] = {}

    def watch(self, cluster: Cluster, faces: Mapping[UUID, PageFace], at: datetime) -> None:
        """Compare with the last look; nothing is new at the first."""
        if self._last is not None:
            for kind, text in _told(self._last, cluster, {**self._faces, **faces}):
                self.add(text, kind, at)
        self._last, self._faces = cluster, faces


def _told(before: Cluster, after: Cluster, faces: Mapping[UUID, PageFace]) -> Iterator[tuple[str, str]]:
    """The `(kind, text)` of each difference."""
    found = changes(before, after)
    if before.paused != after.paused:
        yield "said", "the subscription was paused" if after.paused else "the subscription was resumed"
    for each in found.joined:
        yield "joined", f"{_name(each, faces)} joined"
    for each in found.leaving:
        yield "leaves", f"{_name(each, faces)} leaves"
    for each, left in found.gone:
        rest = f" with {partitions(left)} still its own" if left else ""
        yield "gone", f"{_name(each, faces)} is gone{rest}"
    for (old, new), number in Counter(found.claims.values()).items():
        if new is not None:
            source = f" from {faces[old].letter}" if old is not None and old in faces else ""
            target = faces[new].letter if new in faces else "a process that is gone"
            yield "moved", f"{partitions(number)} moved{source} to {target}"


def _name(instance: Instance, faces: Mapping[UUID, PageFace]) -> str:
    return f"process {faces[instance.instance_id].letter} (pid {instance.pid} on {cut(instance.node, 40)})"
