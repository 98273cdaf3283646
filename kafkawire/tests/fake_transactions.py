"""Fake transaction coordinators: they note the calls, and the test answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from coordinator.api import Future
from coordinator.errors import CoordinatorError
from coordinator.futures import SettableFuture
from coordinator.state.log import StateMarker
from coordinator.transactions.api import Partition, ProducerIdentity, TransactionDescription, TransactionListing

CALLS = (
    "initialise",
    "add_partitions",
    "verify_partitions",
    "end",
    "describe",
    "list_transactions",
)


@dataclass
class FakeTransactions:
    """`calls`: names with arguments. A call with an entry in `answers` is settled at once, the others wait in `asked`
    for the test.

    `answers` has the name of a call as key, or the name together with the transactional id.
    """

    answers: dict[str | tuple[str, str], Any] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    asked: list[SettableFuture[Any]] = field(default_factory=list)
    coordinator: int | CoordinatorError = 1

    def _ask(self, call: str, *arguments: Any) -> SettableFuture[Any]:
        self.calls.append((call, *arguments))
        future: SettableFuture[Any] = SettableFuture()
        self.asked.append(future)
        for key in ((call, *arguments[:1]), call):
            if key in self.answers:
                future.settle(self.answers[key])
                break
        return future

    async def coordinator_of(self, transactional_id: str) -> int:
        self.calls.append(("coordinator_of", transactional_id))
        await trio.lowlevel.checkpoint()
        if isinstance(self.coordinator, CoordinatorError):
            raise self.coordinator
        return self.coordinator

    def initialise(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Future[ProducerIdentity]:
        return self._ask("initialise", transactional_id, timeout_ms, expected)

    def add_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Collection[Partition], *, protocol: int
    ) -> Future[None]:
        return self._ask("add_partitions", transactional_id, asking, list(partitions), protocol)

    def verify_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Sequence[Partition]
    ) -> Future[list[bool]]:
        return self._ask("verify_partitions", transactional_id, asking, list(partitions))

    def end(
        self, transactional_id: str, asking: ProducerIdentity, *, is_commit: bool, protocol: int
    ) -> Future[ProducerIdentity]:
        return self._ask("end", transactional_id, asking, is_commit, protocol)

    def describe(self, transactional_id: str) -> Future[TransactionDescription]:
        return self._ask("describe", transactional_id)

    def list_transactions(self) -> Future[list[TransactionListing]]:
        return self._ask("list_transactions")


@dataclass
class FakeMarkers:
    """A `MarkerWriter` that notes the markers. `answers`: errors by partition."""

    answers: dict[Partition, CoordinatorError] = field(default_factory=dict)
    written: list[tuple[StateMarker, Partition]] = field(default_factory=list)

    def write(self, marker: StateMarker, partition: Partition) -> Future[None]:
        self.written.append((marker, partition))
        future: SettableFuture[None] = SettableFuture()
        future.settle(self.answers.get(partition))
        return future
