"""The transaction coordinators of one broker: one shard for each partition of `__transaction_state` that is led here.

The service decides nothing about transactions. It supplies unused producer ids, which a table cannot know, and sends
the markers of decided transactions. A few ids are in reserve, so that a decision does not wait for one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
import trio

from coordinator.api import TRANSACTION_VERSION
from coordinator.errors import MetadataUnavailable
from coordinator.futures import after_all, settled
from coordinator.shards.replies import Freshness
from coordinator.shards.shard import ReplyFuture, Shard
from coordinator.shards.shard_set import InternalTopic, ShardOptions, ShardSet, StateStorage
from coordinator.transactions.api import TransactionCounters
from coordinator.transactions.entry import DueMarkers, TransactionDeps, TransactionSettings
from coordinator.transactions.markers import MarkerSender
from coordinator.transactions.table import TransactionTable
from coordinator.transactions.transitions import NeedsProducerId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from coordinator.api import ClusterService, Future
    from coordinator.shards.table import Effects, Moment
    from coordinator.transactions.api import (
        MarkerWriter,
        Partition,
        ProducerIdentity,
        TransactionDescription,
        TransactionFigures,
        TransactionListing,
    )

TRANSACTIONS_TOPIC: Final = "__transaction_state"

IDS_IN_RESERVE: Final = 10  # a block's ids are in memory: ids that are taken and not used cost next to nothing
RETRY_PAUSE_S: Final = 0.5  # when no ids can be had
WRITE_TIMEOUT_MS: Final = 30_000  # Kafka's brokers wait as long (request.timeout.ms)

Table = TransactionTable[ReplyFuture]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """Settings of the operator; defaults are Kafka's."""

    broker_id: int
    settings: TransactionSettings
    topic_configs: Mapping[str, str]
    partition_count: int = 50  # transaction.state.log.num.partitions
    replication_factor: int = 3  # transaction.state.log.replication.factor
    min_isr: int = 2  # transaction.state.log.min.isr
    expiry_check_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms

    def shard_options(self) -> ShardOptions:
        """The settings of the shards."""
        topic = InternalTopic(
            name=TRANSACTIONS_TOPIC,
            partition_count=self.partition_count,
            replication_factor=self.replication_factor,
            configs=self.topic_configs,
            min_isr=self.min_isr,
        )
        return ShardOptions(broker_id=self.broker_id, topic=topic, write_timeout_ms=WRITE_TIMEOUT_MS)


class TransactionCoordinators:
    """`TransactionService` and `TransactionStatistics`.

    Life: `run` in a task; `stop` before the server drains, `close` when it has.
    """

    def __init__(
        self,
        cluster: ClusterService,
        storage: StateStorage,
        markers: MarkerWriter,
        options: TransactionOptions,
        wall_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._reserve: deque[int] = deque()
        self._wants_ids = trio.Event()
        self.counters = TransactionCounters()
        deps = TransactionDeps(new_id=self._take_id, protocol=self._protocol)
        self._shards: ShardSet[Table] = ShardSet(
            cluster,
            storage,
            options.shard_options(),
            new_table=lambda: TransactionTable(options.settings, deps, self.counters),
            wall_ms=wall_ms,
            new_id=_no_ids,
            send=self._send,
        )
        self._sender = MarkerSender(markers, self._shards.has, self.counters)

    # Life

    async def run(self) -> None:
        """Leads shards, has markers written and forgets unused ids, for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shards.run)
            nursery.start_soon(self._sender.run)
            nursery.start_soon(self._sweep_now_and_then)
            nursery.start_soon(self._fill_reserve)

    def stop(self) -> None:
        """Take no more commands and refuse parked ones; writes that are on their way to the disk are answered."""
        self._shards.stop()

    async def close(self) -> None:
        """Bring the cache of coordinator state up to date. No more commands come."""
        await self._shards.close()

    def _send(self, shard: Shard[Table], letter: object) -> None:
        assert isinstance(letter, DueMarkers)
        self._sender.send(shard, letter)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await trio.sleep(self._options.expiry_check_interval_ms / 1000)
            for shard in self._shards:
                await shard.ask_each(
                    lambda table: table.transactional_ids(), lambda table, moment, name: table.sweep(moment, name)
                )

    def _protocol(self) -> int:
        """The protocol in which the cluster itself ends transactions: after a timeout, and when their producer begins
        anew."""
        return self._cluster.image.feature_level(TRANSACTION_VERSION)

    # Producer ids

    def _take_id(self) -> int:
        """An unused producer id from the reserve. Raises NeedsProducerId."""
        if len(self._reserve) <= 1:
            self._wants_ids.set()
        if not self._reserve:
            raise NeedsProducerId
        return self._reserve.popleft()

    async def _fill_reserve(self) -> None:
        """Keep ids in reserve, from the first one that is needed on: most brokers never need one."""
        while True:
            await self._wants_ids.wait()
            self._wants_ids = trio.Event()
            try:
                while len(self._reserve) < IDS_IN_RESERVE:
                    self._reserve.append(await self._cluster.new_producer_id())
                    await self._retry_parked()
            except MetadataUnavailable as error:
                log.warning("producer id allocation failed", reason=str(error))
                self._wants_ids.set()
                await trio.sleep(RETRY_PAUSE_S)

    async def _retry_parked(self) -> None:
        """Retry commands that wait for a producer id; a command that finds none waits on."""
        for shard in self._shards:
            await shard.ask_each(
                lambda table: table.without_id(), lambda table, moment, name: table.retry_parked(moment, name)
            )

    # Where a transactional id is

    async def coordinator_of(self, transactional_id: str) -> int:
        """See `TransactionService`."""
        return await self._shards.coordinator_of(transactional_id)

    def _ask(self, name: str, command: Callable[[Table, Moment, ReplyFuture], Effects[ReplyFuture]]) -> Future[Any]:
        return self._shards.ask(name, command)

    def _read(
        self,
        name: str,
        command: Callable[[Table, Moment, ReplyFuture], Effects[ReplyFuture]],
        freshness: Freshness = Freshness.NEWEST,
    ) -> Future[Any]:
        """Run a command that needs no record; it is answered even while no record can be written."""
        return self._shards.ask(name, command, only_reads=True, freshness=freshness)

    # Commands

    def initialise(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Future[ProducerIdentity]:
        """See `TransactionService`."""
        name = transactional_id
        return self._ask(
            name, lambda table, moment, future: table.initialise(moment, name, timeout_ms, expected, future)
        )

    def add_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Collection[Partition], *, protocol: int
    ) -> Future[None]:
        """See `TransactionService`."""
        name = transactional_id
        return self._ask(
            name, lambda table, moment, future: table.add_partitions(moment, name, asking, partitions, protocol, future)
        )

    def verify_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Sequence[Partition]
    ) -> Future[list[bool]]:
        """See `TransactionService`."""
        name = transactional_id
        return self._read(name, lambda table, _, future: table.verify_partitions(name, asking, partitions, future))

    def end(
        self, transactional_id: str, asking: ProducerIdentity, *, is_commit: bool, protocol: int
    ) -> Future[ProducerIdentity]:
        """See `TransactionService`."""
        name = transactional_id
        return self._ask(
            name,
            lambda table, moment, future: table.end(
                moment, name, asking, future, is_commit=is_commit, protocol=protocol
            ),
        )

    def describe(self, transactional_id: str) -> Future[TransactionDescription]:
        """See `TransactionService`."""
        name = transactional_id
        return self._read(name, lambda table, _, future: table.describe(name, future), Freshness.MAY_FALL_BACK)

    def list_transactions(self) -> Future[list[TransactionListing]]:
        """See `TransactionService`."""
        shards = list(self._shards)
        found = [listing for shard in shards for listing in shard.table.listings()]
        if (refusal := self._shards.listing_refusal()) is not None:
            return cast("Future[list[TransactionListing]]", settled(refusal))
        return cast("Future[list[TransactionListing]]", after_all([shard.when_durable() for shard in shards], found))

    def figures(self) -> Iterator[TransactionFigures]:
        """See `TransactionStatistics`."""
        for shard in self._shards:
            yield from shard.table.figures()


def _no_ids() -> str:
    """The source of random ids, which a transaction table never uses."""
    raise AssertionError("a transaction table needs no ids")
