"""A store that counts requests by operation and outcome, with bytes and durations.

The counts show the cost of a store, and whether it is *away*: from the first failed request on, until one is answered.
A store that is away is asked at intervals, because without requests its state is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from engine.stats import Durations
from tiering.object_store import LIST_MAX, ContentUnreadable, ObjectExists, ObjectMissing, StoreError, StoreRefused

if TYPE_CHECKING:
    from tiering.object_store import Content, FilePart, ObjectInfo, ObjectStore

ASK_INTERVAL_S: Final = 30.0  # interval of requests to a store that is away
OPERATIONS: Final = ("put", "get", "head", "delete", "list")
DONE, MISSING, EXISTS, REFUSED, UNAVAILABLE, UNREADABLE = OUTCOMES = (
    "done", "missing", "exists", "refused", "unavailable", "unreadable",
)  # fmt: skip
FAILURES: Final = (REFUSED, UNAVAILABLE)
_OUTCOME_OF: Final = (
    (ObjectMissing, MISSING),
    (ObjectExists, EXISTS),
    (StoreRefused, REFUSED),
    (ContentUnreadable, UNREADABLE),
)


@dataclass(slots=True)
class OperationStatistics:
    """Counts of finished requests since the start. Cancelled requests do not count."""

    outcomes: Counter[str] = field(default_factory=Counter)
    latency: Durations = field(default_factory=Durations)

    @property
    def failures(self) -> int:
        return sum(self.outcomes[one] for one in FAILURES)


@dataclass(slots=True)
class StoreStatistics:
    """Counts of a store. `sent_bytes` and `received_bytes` are of objects, in successful requests."""

    operations: dict[str, OperationStatistics] = field(
        default_factory=lambda: {name: OperationStatistics() for name in OPERATIONS}
    )
    sent_bytes: int = 0
    received_bytes: int = 0


class CountedStore:
    """Implements `tiering.object_store.ObjectStore` over another store. `now_s` is a clock that never goes back."""

    def __init__(self, store: ObjectStore, now_s: Callable[[], float] = trio.current_time) -> None:
        self.statistics = StoreStatistics()
        self.last_error = ""
        self._away_since_s: float | None = None
        self._store = store
        self._now_s = now_s

    @property
    def away_s(self) -> float:
        """The seconds that the store has been away; 0 if it is not, as far as is known."""
        return 0.0 if self._away_since_s is None else self._now_s() - self._away_since_s

    async def put(self, key: str, content: Content, *, if_absent: bool = False) -> None:
        with self._counted("put"):
            await self._store.put(key, content, if_absent=if_absent)
            self.statistics.sent_bytes += content.size_bytes

    async def get(self, key: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        with self._counted("get"):
            found = await self._store.get(key, start, size_bytes)
            self.statistics.received_bytes += len(found)
            return found

    async def get_part(self, key: str, start: int, size_bytes: int) -> bytes | bytearray | FilePart:
        with self._counted("get"):
            found = await self._store.get_part(key, start, size_bytes)
            self.statistics.received_bytes += len(found)
            return found

    async def head(self, key: str) -> ObjectInfo | None:
        with self._counted("head") as count:
            found = await self._store.head(key)
            if found is None:
                count.outcome = MISSING
            return found

    async def delete(self, key: str) -> None:
        with self._counted("delete"):
            await self._store.delete(key)

    async def list_after(self, prefix: str, after: str = "", count_max: int = LIST_MAX) -> Sequence[ObjectInfo]:
        with self._counted("list"):
            return await self._store.list_after(prefix, after, count_max)

    def close(self) -> None:
        self._store.close()

    async def ask_while_away(self, prefix: str) -> None:
        """Send a listing at intervals while the store is away, until cancelled: without other requests, its return
        would go unnoticed."""
        while True:
            await trio.sleep(ASK_INTERVAL_S)
            if self._away_since_s is not None:
                try:
                    await self.list_after(prefix, count_max=1)
                except StoreError:
                    continue

    @contextmanager
    def _counted(self, operation: str) -> Iterator[_Count]:
        """Count a request. A cancelled one does not count, because its outcome is unknown."""
        count, begun_s = _Count(), self._now_s()
        try:
            yield count
        except StoreError as error:
            count.outcome = next((one for kind, one in _OUTCOME_OF if isinstance(error, kind)), UNAVAILABLE)
            self._note(operation, count.outcome, begun_s, str(error))
            raise
        self._note(operation, count.outcome, begun_s)

    def _note(self, operation: str, outcome: str, begun_s: float, error: str = "") -> None:
        counted = self.statistics.operations[operation]
        counted.outcomes[outcome] += 1
        counted.latency.note(self._now_s() - begun_s)
        if outcome in FAILURES:
            self.last_error = error
            if self._away_since_s is None:
                self._away_since_s = begun_s
        elif outcome != UNREADABLE:  # an error of the content, not of the store
            self._away_since_s = None


@dataclass(slots=True)
class _Count:
    outcome: str = DONE
