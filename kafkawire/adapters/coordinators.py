"""The coordinators of one broker, joined: groups, transactions, and the markers by which the one moves the other. Among
several brokers transactions reach to what others lead, and others are asked for transactions, over links."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import trio

from coordinator.groups.service import GroupCoordinators
from coordinator.shards.led import StateKeeping
from coordinator.transactions.service import TransactionCoordinators
from kafkawire.adapters.markers import LocalMarkers
from kafkawire.adapters.options import group_options, transaction_options
from kafkawire.adapters.state_logs import EngineStateLogs
from kafkawire.links.markers import ClusterMarkers
from kafkawire.links.transactions import ClusterTransactions

if TYPE_CHECKING:
    from coordinator.api import ClusterService
    from coordinator.state_view import StateView
    from engine.api import PartitionStore
    from kafkawire.config.broker_config import Config
    from kafkawire.links.links import Links

VIEWS_CLOSE_MAX_S = 2.0  # what is missing from a view is read from its log


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What goes to other brokers."""

    links: Links
    markers: ClusterMarkers
    transactions: ClusterTransactions

    async def run(self) -> None:
        """For as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.links.run)
            nursery.start_soon(self.markers.run)
            nursery.start_soon(self.transactions.run)


@dataclass(frozen=True, slots=True)
class Coordinators:
    """Life: `run` in a task, `close` when the server has drained."""

    groups: GroupCoordinators
    transactions: TransactionCoordinators
    markers: LocalMarkers
    neighbours: Neighbours | None = None

    @property
    def transactions_of_cluster(self) -> ClusterTransactions | None:
        """None: all are coordinated here."""
        return None if self.neighbours is None else self.neighbours.transactions

    async def run(self, stop: trio.Event) -> None:
        """For as long as the broker lives. From `stop` on they take nothing: members that wait for others would keep
        the server from answering its last request."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.groups.run)
            nursery.start_soon(self.transactions.run)
            if self.neighbours is not None:
                nursery.start_soon(self.neighbours.run)
            await stop.wait()
            self.groups.stop()
            self.transactions.stop()

    async def close(self) -> None:
        """Brings the views up to date, as far as their disk does that soon. Nothing is asked any more."""
        with trio.move_on_after(VIEWS_CLOSE_MAX_S):
            await self.transactions.close()
            await self.groups.close()


async def join(
    config: Config,
    cluster: ClusterService,
    store: PartitionStore,
    open_view: Callable[[Path], Awaitable[StateView]],
    random: Random,
    now_ms: Callable[[], int],
    links: Links | None = None,
) -> Coordinators:
    """Each with a view of its topic in the first log dir. `links`: to other brokers, if there may be any."""
    offsets_view = await open_view((config.log_dirs[0] / "offsets-view").absolute())
    groups = GroupCoordinators(cluster, EngineStateLogs(store), offsets_view, group_options(config), random, now_ms)
    markers = LocalMarkers(store, cluster, groups)
    transactions_view = await open_view((config.log_dirs[0] / "transactions-view").absolute())
    keeping = StateKeeping(logs=EngineStateLogs(store), view=transactions_view)
    options = transaction_options(config)
    if links is None:
        return Coordinators(groups, TransactionCoordinators(cluster, keeping, markers, options, now_ms), markers)
    everywhere = ClusterMarkers(markers, links, cluster, config.node_id)
    transactions = TransactionCoordinators(cluster, keeping, everywhere, options, now_ms)
    asked = ClusterTransactions(transactions, links, cluster, config.node_id)
    return Coordinators(groups, transactions, markers, Neighbours(links, everywhere, asked))
