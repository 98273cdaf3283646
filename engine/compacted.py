"""What a leader tells a replica about a part of its log that compaction has been through (RULES K19)."""

from collections.abc import Sequence
from typing import NamedTuple


class Compacted(NamedTuple):
    """`epoch_starts`: which leader epochs began where, in the order of both, as the batches that are left may not tell.

    `dropped_to`: below it tombstones and markers may be gone, with all that they decided about; 0, if that is not above
    the offset that was asked for.
    """

    epoch_starts: Sequence[tuple[int, int]] = ()
    dropped_to: int = 0


NOT_COMPACTED = Compacted()
