"""Plain counters of what the engine does by itself, for whoever shows them."""

from collections import Counter
from dataclasses import dataclass, field

from engine.retention import Reason


@dataclass(slots=True)
class StoreStats:
    """Over all log dirs, since the start."""

    removed_segments: Counter[Reason] = field(default_factory=Counter)
    removed_bytes: Counter[Reason] = field(default_factory=Counter)
    sealed_segments: int = 0
    scrubbed_bytes: int = 0  # read to be sealed, or again
    damage_found: int = 0  # by that

    def note_removed(self, reason: Reason, size_bytes: int) -> None:
        """A segment went."""
        self.removed_segments[reason] += 1
        self.removed_bytes[reason] += size_bytes
