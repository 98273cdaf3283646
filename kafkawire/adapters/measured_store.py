"""A metadata store that measures how long requests take, and when the store last answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio

from coordinator.metadata_store.store import ConnectionLost, SessionLost, StoreError
from engine.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from coordinator.metadata_store.statistics import SessionStatistics
    from coordinator.metadata_store.store import MetadataStore, Node, Operation, Wake

T = TypeVar("T")
SILENT_MAX_S: Final = 60.0


class MeasuredStore:
    """A `MetadataStore` that passes all requests to another one."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._answered_s = trio.current_time()
        self._is_unanswered = False  # the last request got no answer
        self.latency = Durations()

    @property
    def session(self) -> SessionStatistics | None:
        """See `MetadataStore`."""
        return self._store.session

    @property
    def age_s(self) -> float:
        """The seconds since the store last answered a request or a ping. If the store has no session, it is in this
        process: then 0, unless its last request failed."""
        unanswered_s = trio.current_time() - self._answered_s
        if self._is_unanswered:
            return unanswered_s
        return 0.0 if self.session is None else min(unanswered_s, self.session.silent_s())

    def usable_by(self, has_metadata: Callable[[], bool]) -> Callable[[], bool]:
        """A predicate: `has_metadata` is true, and the store has answered within `SILENT_MAX_S`. A broker that is cut
        off does not know yet that its session has ended."""
        return lambda: has_metadata() and self.age_s < SILENT_MAX_S

    async def get(self, path: str) -> Node:
        """See `MetadataStore`."""
        return await self._measured(self._store.get(path))

    async def exists(self, path: str, wake: Wake | None = None) -> bool:
        """See `MetadataStore`."""
        return await self._measured(self._store.exists(path, wake))

    async def children(self, path: str, wake: Wake | None = None) -> list[str]:
        """See `MetadataStore`."""
        return await self._measured(self._store.children(path, wake))

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """See `MetadataStore`."""
        return await self._measured(self._store.children_of_many(paths))

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """See `MetadataStore`."""
        return await self._measured(self._store.read_many(paths))

    async def read_children(self, path: str) -> Mapping[str, Node]:
        """See `MetadataStore`."""
        return await self._measured(self._store.read_children(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        """See `MetadataStore`."""
        await self._measured(self._store.multi(operations))

    async def sync(self) -> None:
        """See `MetadataStore`."""
        await self._measured(self._store.sync())

    async def renew(self) -> None:
        """See `MetadataStore`."""
        await self._store.renew()

    async def close(self) -> None:
        """See `MetadataStore`."""
        await self._store.close()

    async def _measured(self, request: Awaitable[T]) -> T:
        began_s = trio.current_time()
        try:
            answer = await request
        except (ConnectionLost, SessionLost):
            self._is_unanswered = True
            raise
        except StoreError:
            self._note_answer(began_s)
            raise
        self._note_answer(began_s)
        return answer

    def _note_answer(self, began_s: float) -> None:
        self._answered_s, self._is_unanswered = trio.current_time(), False
        self.latency.note(self._answered_s - began_s)
