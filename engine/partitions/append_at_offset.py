"""Append at offset: batches that keep the offsets of another log (docs/formats/append-at-offset.md)."""

from engine.batches.batch import BatchHeader
from engine.commit.appends import Append, Owner
from engine.errors import OffsetOutOfRange
from engine.logs.segments.roll_policy import SEGMENT_OFFSETS_MAX
from engine.logs.segments.segment import may_follow


class AppendAtOffset(Append):
    """A batch without a producer that keeps its offsets, which alone tell whether the log has it already.

    `follows`: the log end that the batch has to follow, as it was when the request came; None: the log had the batch
    already.
    """

    __slots__ = ("follows",)

    def __init__(self, owner: Owner, records: memoryview, header: BatchHeader, role: object, hurries: bool) -> None:
        super().__init__(owner, records, header, role, True, hurries)
        self.follows: int | None = None

    def is_next(self, end_offset: int, compacted_to: int) -> bool:
        """Whether the batch is appended to a log that ends at `end_offset`; False: the log has it already.

        Raises OffsetOutOfRange if the log end has changed since the request came, or if there are gaps that are not
        expected.
        """
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
    """Whether the batch has fewer records than offsets."""
    return header.record_count <= header.last_offset_delta


def check_reach(header: BatchHeader, end_offset: int) -> None:
    """Raise OffsetOutOfRange if the batch overlaps that log end, or is too far from it. Gaps are not checked."""
    if header.base_offset < end_offset:
        raise OffsetOutOfRange(f"a batch from offset {header.base_offset} on reaches below the log end {end_offset}")
    if header.next_offset - end_offset > SEGMENT_OFFSETS_MAX:
        raise OffsetOutOfRange(f"a batch up to offset {header.next_offset} is too far from the log end {end_offset}")
