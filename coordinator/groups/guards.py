"""Guards for offsets in a transaction: they notice its end between the question to its coordinator and the answer.
Pure.

In the first protocol of transactions nothing tells a producer's transaction from its next one: a permission of its
coordinator is void once a marker came (KIP-890, as UnifiedLog's verification guards). An offset that is written all the
same would stay pending until the producer ends another transaction in the same partition.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """The guard of one request."""

    guards: Guards
    producer_id: int


class Guards:
    """The guards of one table, as many as requests wait. A caller that takes one gives it back."""

    def __init__(self) -> None:
        self._by_producer: dict[int, set[Guard]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def take(self, producer_id: int) -> Guard:
        """A guard that notices markers of that producer from now on."""
        guard = Guard(self, producer_id)
        self._by_producer.setdefault(producer_id, set()).add(guard)
        return guard

    def give_back(self, guard: Guard) -> bool:
        """Give a guard back; return whether no marker has come meanwhile."""
        guards = self._by_producer.get(guard.producer_id, set())
        if guard not in guards:
            return False
        guards.remove(guard)
        if not guards:
            del self._by_producer[guard.producer_id]
        return True

    def void(self, producer_id: int) -> None:
        """Void the guards of a producer, as a marker has come."""
        self._by_producer.pop(producer_id, None)
