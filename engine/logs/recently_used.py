"""Bounded caches of segments by least recent use: open files, indexes in memory, dense indexes.

The least recently used segment gives up its resource, unless it cannot just now. Used on the event loop only.
Partitions report when a segment is used and when it is gone.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from engine.logs.segments.segment import Segment

ATTEMPTS_MAX = 16


class SegmentHolder(Protocol):
    """The part of a partition that frees the resources of its segments."""

    def close_file(self, segment: Segment) -> bool:
        """Close the file of `segment`; False if that is not possible now."""

    def drop_index(self, segment: Segment) -> bool: ...
    def thin_index(self, segment: Segment) -> bool: ...


class RecentlyUsed:
    """A cache of at most `max_count` segments, plus those whose `give_up` returns False."""

    __slots__ = ("_give_up", "_max_count", "_owners")

    def __init__(self, max_count: int, give_up: Callable[[SegmentHolder, Segment], bool]) -> None:
        self._max_count = max_count
        self._give_up = give_up
        self._owners: dict[Segment, SegmentHolder] = {}  # the least recently used one first

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def is_crowded(self) -> bool:
        """Whether there are more segments than allowed, because `give_up` failed."""
        return len(self._owners) > self._max_count

    def use(self, owner: SegmentHolder, segment: Segment) -> None:
        """Note that `segment` holds the resource and was used now."""
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
        """Forget segments that are gone."""
        for segment in segments:
            self._owners.pop(segment, None)


class SegmentCaches:
    """The limits of all segments of a store: open files, indexes, dense indexes."""

    __slots__ = ("dense_indexes", "files", "indexes")

    def __init__(self, open_files_max: int, indexes_max: int, dense_indexes_max: int) -> None:
        self.files = RecentlyUsed(open_files_max, lambda owner, segment: owner.close_file(segment))
        self.indexes = RecentlyUsed(indexes_max, lambda owner, segment: owner.drop_index(segment))
        self.dense_indexes = RecentlyUsed(dense_indexes_max, lambda owner, segment: owner.thin_index(segment))

    def forget(self, segments: Iterable[Segment]) -> None:
        """Free the resources of deleted segments; reads in flight keep their files open."""
        for segment in segments:
            segment.file = segment.index = None
            self.files.forget([segment])
            self.indexes.forget([segment])
            self.dense_indexes.forget([segment])
