"""Transactional producers and readers of committed records, in a cluster where each kind of request goes to another
broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import trio

from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.cluster_simulation.clients import RESTS_S, LeaderNetwork, with_leader_network
from kafkawire.tests.cluster_simulation.machines import Machines
from kafkawire.tests.cluster_simulation.plan import OFFSETS, TRANSACTION_STATE
from kafkawire.tests.simulation.late_requests import LateRequests
from kafkawire.tests.simulation.network import Connection, Network
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.transaction_client import RETRIED, RetryingClient, Transactor, code_in
from kafkawire.tests.simulation.transaction_history import NO_EPOCH, Fate, StableRead
from kafkawire.tests.simulation.transaction_plan import TransactorPlan
from kafkawire.tests.simulation.transaction_reader import StableReader
from kafkawire.tests.simulation.transactions import Transactions
from kafkawire.wire.message import Message

COMMITTED = "transactions committed"
OF_OFFSETS = (OffsetCommitRequest, OffsetFetchRequest, TxnOffsetCommitRequest)


def partition_of(request: Message) -> Target | None:
    """The partition whose leader answers the request; None if any broker does."""
    if isinstance(request, FindCoordinatorRequest):
        return None
    if isinstance(request, ProduceRequest):
        produced = request.topic_data[0]
        return Target(produced.name, produced.partition_data[0].index)
    if isinstance(request, FetchRequest):
        fetched = request.topics[0]
        return Target(fetched.topic, fetched.partitions[0].partition)
    return OFFSETS if isinstance(request, OF_OFFSETS) else TRANSACTION_STATE


@dataclass
class LeaderNetworks:
    """The networks of one client, one for each partition whose leader it asks. The network that it shares with others
    leads to any broker."""

    name: str
    shared: Shared
    machines: Machines
    _known: dict[Target | None, Shared] = field(default_factory=dict)

    def of(self, target: Target | None) -> Shared:
        """The shared state, with a network to the leader of that partition."""
        if target is None:
            return self.shared
        if target not in self._known:
            self._known[target] = with_leader_network(self.shared, self.machines, target, f"{self.name}, {target},")
        return self._known[target]

    def epoch_of(self, target: Target) -> int:
        """The epoch in which the last asked broker leads there; -1 if it does not."""
        network = self.of(target).network
        assert isinstance(network, LeaderNetwork)
        return network.epoch


@dataclass
class RoutingClient(RetryingClient):
    """A client with a connection to each leader. After an error that it may retry it opens all connections again."""

    networks: LeaderNetworks = field(kw_only=True)
    rests_s: ClassVar[tuple[float, float]] = RESTS_S
    _open: dict[Target | None, Connection] = field(default_factory=dict, init=False)

    async def ask_all(self, requests: Sequence[Message], version: int, retried: Collection[int] = RETRIED) -> list[Any]:
        answers = await super().ask_all(requests, version, retried)
        if any(code_in(one) in RETRIED for one in answers):
            self.hang_up()
        return answers

    async def _connected(self, request: Message) -> Connection:
        target = partition_of(request)
        if target not in self._open:
            self._open[target] = await self.networks.of(target).connected(self.name, self.rng)
        return self._open[target]

    def _put_off(self, answers: Sequence[Any]) -> None:
        """Take an answer as lost if the broker could not serve the request: it may still be executed, as other brokers
        have it too."""
        if any(code_in(one) in RETRIED - {ErrorCode.CONCURRENT_TRANSACTIONS} for one in answers):
            self.was_lost = True
            self.hang_up()

    def hang_up(self) -> None:
        for target, connection in self._open.items():
            self.networks.of(target).network.disconnect(connection)
        self._open.clear()


@dataclass
class PartitionTransactor(RoutingClient, Transactor):
    """A transactional producer, whichever brokers coordinate its transactions and lead their partitions."""


@dataclass
class PartitionStableReader(RoutingClient, StableReader):
    """A reader of committed records that notes the leader epoch of each reply."""

    async def read(self, target: Target) -> StableRead | None:
        request_epoch = self.networks.epoch_of(target)
        found = await super().read(target)
        if found is not None:
            found.epoch = request_epoch if request_epoch == self.networks.epoch_of(target) else NO_EPOCH
        return found


@dataclass
class LateRoutedRequests(LateRequests):
    """Late requests; each goes to the broker that answers it when it arrives."""

    networks: LeaderNetworks

    def _network_for(self, request: Message) -> Network:
        return self.networks.of(partition_of(request)).network


@dataclass
class PartitionTransactions(Transactions):
    """All transactional clients of a run."""

    machines: Machines = field(kw_only=True)

    @property
    def counts(self) -> Counter[str]:
        return Counter({COMMITTED: sum(one.fate is Fate.COMMITTED for one in self.history.transactions)})

    def _networks(self, name: str) -> LeaderNetworks:
        return LeaderNetworks(name, self.shared, self.machines)

    def _late(self, nursery: trio.Nursery) -> LateRequests:
        return LateRoutedRequests(self.shared, nursery, self._networks("late"))

    def _transactor(self, one: TransactorPlan, late: LateRequests) -> Transactor:
        networks = self._networks(one.name)
        return PartitionTransactor(one.name, self.shared, self.history, one, self.plan, late, networks=networks)

    def _reader(self, name: str) -> StableReader:
        return PartitionStableReader(name, self.shared, self.history, self.plan, networks=self._networks(name))
