"""The group and transaction coordinators of one broker, connected through the markers that end transactions. In a
cluster, peer connections carry markers and verifications of transactions to and from other brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import trio

from coordinator.groups.service import GroupCoordinators
from coordinator.shards.shard_set import StateStorage
from coordinator.transactions.service import TransactionCoordinators
from kafkawire.adapters.markers import LocalMarkers
from kafkawire.adapters.options import group_options, transaction_options
from kafkawire.adapters.state_logs import EngineStateLogs
from kafkawire.peers.markers import ClusterMarkers
from kafkawire.peers.transactions import ClusterTransactions

if TYPE_CHECKING:
    from coordinator.api import ClusterService
    from coordinator.state.cache import StateCache
    from engine.api import PartitionStore
    from kafkawire.config.broker_config import Config
    from kafkawire.peers.peers import Peers

VIEWS_CLOSE_MAX_S = 2.0  # the next start reads from the log what a cache of coordinator state lacks


@dataclass(frozen=True, slots=True)
class PeerServices:
    """Parts that send requests to other brokers: markers, and verifications of transactions."""

    links: Peers
    markers: ClusterMarkers
    transactions: ClusterTransactions

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.links.run)
            nursery.start_soon(self.markers.run)
            nursery.start_soon(self.transactions.run)


@dataclass(frozen=True, slots=True)
class Coordinators:
    """The coordinators of one broker. The caller runs `run` in a task, and `close` when the server has drained."""

    groups: GroupCoordinators
    transactions: TransactionCoordinators
    markers: LocalMarkers
    peer_services: PeerServices | None = None

    @property
    def transactions_of_cluster(self) -> ClusterTransactions | None:
        """Transactions of other brokers' coordinators; None if this broker coordinates all transactions."""
        return None if self.peer_services is None else self.peer_services.transactions

    async def run(self, stop: trio.Event) -> None:
        """Serve for as long as the broker lives. From `stop` on the coordinators take no requests: members that wait
        for others would keep the server from answering its last request."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.groups.run)
            nursery.start_soon(self.transactions.run)
            if self.peer_services is not None:
                nursery.start_soon(self.peer_services.run)
            await stop.wait()
            self.groups.stop()
            self.transactions.stop()

    async def close(self) -> None:
        """Bring the caches of coordinator state up to date, within `VIEWS_CLOSE_MAX_S`. The coordinators take no more
        requests."""
        with trio.move_on_after(VIEWS_CLOSE_MAX_S):
            await self.transactions.close()
            await self.groups.close()


async def build_coordinators(
    config: Config,
    cluster: ClusterService,
    store: PartitionStore,
    open_view: Callable[[Path], Awaitable[StateCache]],
    random: Random,
    now_ms: Callable[[], int],
    links: Peers | None = None,
) -> Coordinators:
    """Create the coordinators, each with a cache of its topic's state in the first log dir. `links`: peer connections
    to other brokers, None if this broker stands alone."""
    offsets_view = await open_view((config.log_dirs[0] / "offsets-view").absolute())
    groups = GroupCoordinators(cluster, EngineStateLogs(store), offsets_view, group_options(config), random, now_ms)
    markers = LocalMarkers(store, cluster, groups)
    transactions_view = await open_view((config.log_dirs[0] / "transactions-view").absolute())
    keeping = StateStorage(logs=EngineStateLogs(store), cache=transactions_view)
    options = transaction_options(config)
    if links is None:
        return Coordinators(groups, TransactionCoordinators(cluster, keeping, markers, options, now_ms), markers)
    cluster_markers = ClusterMarkers(markers, links, cluster, config.node_id)
    transactions = TransactionCoordinators(cluster, keeping, cluster_markers, options, now_ms)
    peer_transactions = ClusterTransactions(transactions, links, cluster, config.node_id)
    return Coordinators(groups, transactions, markers, PeerServices(links, cluster_markers, peer_transactions))
