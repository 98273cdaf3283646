"""Who asks whether he may write in a transaction, and whether that transaction has ended before the answer. Pure.

In the first protocol of transactions nothing tells a producer's transaction from its next one: what its coordinator
allowed is void once a marker came (KIP-890, as UnifiedLog's verification guards). What were written all the same would
stay pending until the producer ends another transaction in the same partition.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """Of one request."""

    guards: Guards
    producer_id: int


class Guards:
    """Of one table. There are as many as requests wait; whoever takes one gives it back."""

    def __init__(self) -> None:
        self._by_producer: dict[int, set[Guard]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def take(self, producer_id: int) -> Guard:
        """From now on markers of that producer count."""
        guard = Guard(self, producer_id)
        self._by_producer.setdefault(producer_id, set()).add(guard)
        return guard

    def give_back(self, guard: Guard) -> bool:
        """Whether no marker has come meanwhile."""
        held = self._by_producer.get(guard.producer_id, set())
        if guard not in held:
            return False
        held.remove(guard)
        if not held:
            del self._by_producer[guard.producer_id]
        return True

    def void(self, producer_id: int) -> None:
        """A marker has come."""
        self._by_producer.pop(producer_id, None)
