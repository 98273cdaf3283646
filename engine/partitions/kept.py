"""Batches that keep the offsets they have: as they come from another log, docs/formats/append-at-offset.md."""

from engine.batches.batch import BatchHeader
from engine.commit.appends import Append, Owner
from engine.errors import OffsetOutOfRange
from engine.logs.roll_policy import SEGMENT_OFFSETS_MAX
from engine.logs.segment import may_follow


class Kept(Append):
    """Nobody's batch, so its offsets alone tell whether it is there. `follows`: the log end that it is to go behind, as
    it was when somebody looked; None if it was there by then."""

    __slots__ = ("follows",)

    def __init__(self, owner: Owner, records: memoryview, header: BatchHeader, role: object, hurries: bool) -> None:
        super().__init__(owner, records, header, role, True, hurries)
        self.follows: int | None = None

    def is_next(self, end_offset: int, compacted_to: int) -> bool:
        """Whether it goes to a log that ends there; else it is there already. Raises OffsetOutOfRange: the log has
        changed since somebody looked, or there are gaps that nobody was told to expect."""
        header = self.header
        if self.follows is None and header.next_offset <= end_offset:
            return False
        if self.follows != end_offset:
            raise OffsetOutOfRange(f"the log end is {end_offset} by now, and a batch was to follow at {self.follows}")
        if not may_follow(header.base_offset, end_offset, compacted_to) or (
            has_gaps(header) and header.next_offset > compacted_to
        ):
            raise OffsetOutOfRange(f"a batch from offset {header.base_offset} on with gaps that are not expected")
        return True


def has_gaps(header: BatchHeader) -> bool:
    """Whether it has fewer records than offsets."""
    return header.record_count <= header.last_offset_delta


def check_reach(header: BatchHeader, end_offset: int) -> None:
    """Whether it may go behind that end, gaps aside. Raises OffsetOutOfRange."""
    if header.base_offset < end_offset:
        raise OffsetOutOfRange(f"a batch from offset {header.base_offset} on reaches below the log end {end_offset}")
    if header.next_offset - end_offset > SEGMENT_OFFSETS_MAX:
        raise OffsetOutOfRange(f"a batch up to offset {header.next_offset} is too far from the log end {end_offset}")
