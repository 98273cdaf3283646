"""A bounded number of segments that hold something costly: an open file, an index in memory, or a dense one.

The least recently used one has to give it up, unless it cannot just now. On the loop; partitions say when a segment
was used and when it is no more.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from engine.logs.segment import Segment

ATTEMPTS_MAX = 16


class SegmentHolder(Protocol):
    """A partition, as far as it has segments."""

    def close_file(self, segment: Segment) -> bool:
        """False: not now."""

    def drop_index(self, segment: Segment) -> bool: ...
    def thin_index(self, segment: Segment) -> bool: ...


class RecentlyUsed:
    """At most `max_count` segments, but for those that `give_up` leaves as they are (it says whether it did)."""

    __slots__ = ("_give_up", "_max_count", "_owners")

    def __init__(self, max_count: int, give_up: Callable[[SegmentHolder, Segment], bool]) -> None:
        self._max_count = max_count
        self._give_up = give_up
        self._owners: dict[Segment, SegmentHolder] = {}  # the least recently used one first

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def is_crowded(self) -> bool:
        """Whether there are more than there should be, because they could not give it up."""
        return len(self._owners) > self._max_count

    def use(self, owner: SegmentHolder, segment: Segment) -> None:
        """It has what it has, now."""
        self._owners.pop(segment, None)
        self._owners[segment] = owner
        if len(self._owners) > self._max_count:
            self._shrink()

    def _shrink(self) -> None:
        oldest = [one for one, _ in zip(self._owners, range(ATTEMPTS_MAX), strict=False)]
        for segment in oldest:
            owner = self._owners.pop(segment)
            if not self._give_up(owner, segment):
                self._owners[segment] = owner
            elif len(self._owners) <= self._max_count:
                return

    def forget(self, segments: Iterable[Segment]) -> None:
        """They are no more."""
        for segment in segments:
            self._owners.pop(segment, None)


class SegmentCaches:
    """What the segments of a whole store may hold together."""

    __slots__ = ("dense_indexes", "files", "indexes")

    def __init__(self, open_files_max: int, indexes_max: int, dense_indexes_max: int) -> None:
        self.files = RecentlyUsed(open_files_max, lambda owner, segment: owner.close_file(segment))
        self.indexes = RecentlyUsed(indexes_max, lambda owner, segment: owner.drop_index(segment))
        self.dense_indexes = RecentlyUsed(dense_indexes_max, lambda owner, segment: owner.thin_index(segment))

    def forget(self, segments: Iterable[Segment]) -> None:
        """They are deleted; whoever reads them still has the files."""
        for segment in segments:
            segment.file = segment.index = None
            self.files.forget([segment])
            self.indexes.forget([segment])
            self.dense_indexes.forget([segment])
