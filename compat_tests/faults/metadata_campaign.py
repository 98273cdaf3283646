"""Campaign: clients change the metadata of three brokers while servers and brokers are killed, paused and cut off.

Each of the brokers, and of the ZooKeeper servers, is a host of its own at a switch. A witness follows the changes as a
broker would. At the end every broker has to report the metadata of the witness, all acknowledged changes have to be
there, and no change may have been made twice.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from compat_tests.faults.faults import HostFaults
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.network import Network, inside
from compat_tests.harness.zookeeper import zookeeper_ensemble
from coordinator.metadata.change_log import ChangeLog
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import ConnectionLost
from coordinator.metadata_store.zookeeper import ZooKeeperSettings, open_zookeeper
from kafkawire.client.connection import Address, Connection, connect_tcp
from kafkawire.client.errors import ClientError
from kafkawire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkawire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkawire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from compat_tests.faults.faults import FaultAction
    from compat_tests.harness.kafkawire_broker import Kafkawire
    from compat_tests.harness.zookeeper import ZooKeeperEnsemble
    from coordinator.api import ClusterImage, TopicInfo

CLIENTS: Final = 12
PAUSE_S: Final = 0.05
NAMES: Final = 12
SESSION_TIMEOUT_MS: Final = 3_000
ANSWER_WITHIN_S: Final = 4.0  # then another broker is asked
SETTLED_WITHIN_S: Final = 60.0
TOPIC: Final = 2  # of ConfigResource.Type
SET: Final = 0
RETENTION: Final = "retention.ms"
HOUR_MS: Final = 3_600_000


class Witness(ChangeLog):
    """Follows all changes one by one, and remembers for each topic how often it was created, deleted and changed."""

    created: Counter[bytes]
    deleted: Counter[bytes]
    grown: int
    values: Counter[tuple[bytes, str]]  # each time that a topic's retention became so
    leads: dict[tuple[bytes, int, int], tuple[int, bytes]]
    loads: int

    def begin(self) -> None:
        self.created, self.deleted, self.values = Counter(), Counter(), Counter()
        self.grown, self.loads, self.leads = 0, 0, {}

    async def _load(self, cluster_id: str) -> None:
        self.loads += 1
        await super()._load(cluster_id)

    def _publish(self, image: ClusterImage) -> None:
        before = self.image.topics_by_id
        self.created.update(image.topics_by_id.keys() - before.keys())
        self.deleted.update(before.keys() - image.topics_by_id.keys())
        for topic_id, topic in image.topics_by_id.items():
            if (known := before.get(topic_id)) is not topic:
                self._note(known, topic)
        super()._publish(image)

    def _note(self, known: TopicInfo | None, topic: TopicInfo) -> None:
        self.grown += known is not None and len(known.partitions) < len(topic.partitions)
        value = topic.configs.get(RETENTION)
        if value is not None and (known is None or known.configs.get(RETENTION) != value):
            self.values[topic.topic_id, value] += 1
        for number, state in enumerate(topic.partitions):
            lead = (state.leader, state.incarnation)
            key = (topic.topic_id, number, state.leader_epoch)
            assert self.leads.setdefault(key, lead) == lead, f"two leaders of {topic.name}-{number} in one epoch"

    async def follow(self) -> None:
        """Follow the changes until cancelled."""
        while True:
            wake = trio.Event()
            with suppress(ConnectionLost):
                await self.catch_up(wake)
            with trio.move_on_after(1):
                await wake.wait()


@dataclass
class ClientChanges:
    """The changes that clients asked for, and those that were acknowledged."""

    created: set[bytes] = field(default_factory=set)
    known: set[bytes] = field(default_factory=set)  # topics that exist: acknowledged, or found by a client
    deleted: set[bytes] = field(default_factory=set)
    asked_to_delete: set[bytes] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    growths_asked: int = 0
    growths: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0

    @property
    def changes(self) -> int:
        """The number of acknowledged changes."""
        return len(self.created) + len(self.deleted) + len(self.values) + self.growths


class Campaign:
    """A single run of the campaign."""

    def __init__(self, directory: Path, network: Network, ensemble: ZooKeeperEnsemble, seed: int) -> None:
        self.random = Random(seed)
        self.ensemble = ensemble
        overrides = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS), "offsets.topic.num.partitions": "1"}
        hosts = [network.add() for _ in range(3)]
        self.cluster = KafkawireCluster(directory, overrides, ensemble.connect, hosts=hosts)
        self.brokers = list(self.cluster.brokers.values())
        self.faults = HostFaults(self.random, network, ensemble, self.cluster, SESSION_TIMEOUT_MS)
        self.client_changes = ClientChanges()

    # Clients

    async def change_until(self, count: int) -> None:
        """Change the metadata as one client, until so many changes are acknowledged."""
        while self.client_changes.changes < count:
            number = self.random.randrange(3)
            try:
                with trio.fail_after(ANSWER_WITHIN_S):
                    async with connected(self.brokers[number]) as connection:
                        for _ in range(self.random.randrange(1, 20)):
                            await self._change(connection)
                            await trio.sleep(PAUSE_S)  # refusals come at once and must not keep the machine busy
            except (ClientError, trio.TooSlowError):
                self.client_changes.unanswered += 1
                await trio.sleep(PAUSE_S)

    async def _change(self, connection: Connection) -> None:
        draw, client_changes = self.random.random(), self.client_changes
        name = f"t{self.random.randrange(NAMES)}"
        alive = sorted(client_changes.known)
        if draw < 0.3 or not alive:
            await self._create(connection, name)
        elif draw < 0.55:
            await self._delete(connection, self.random.choice(alive))
        elif draw < 0.65:
            await self._grow(connection, name)
        else:
            await self._set(connection, name)

    async def _create(self, connection: Connection, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=self.random.randrange(1, 4), replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        (row,) = (await connection.call(request, CreateTopicsResponse, at_least=7)).topics
        if self._is_done(row.error_code):
            self.client_changes.created.add(row.topic_id)
            self.client_changes.known.add(row.topic_id)
        elif row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            await self._find(connection, name)

    async def _find(self, connection: Connection, name: str) -> None:
        """Look a topic up by its name and note its id. Its creation may be unacknowledged: it has to be deleted later,
        too."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = (await connection.call(request, MetadataResponse, at_least=10)).topics
        if not topic.error_code:
            self.client_changes.known.add(topic.topic_id)

    async def _delete(self, connection: Connection, topic_id: bytes) -> None:
        """Delete a topic by its id, so that a late request cannot delete another topic of the same name. The campaign
        asks again until the topic is gone."""
        self.client_changes.asked_to_delete.add(topic_id)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=10_000)
        (row,) = (await connection.call(request, DeleteTopicsResponse, at_least=6)).responses
        if self._is_done(row.error_code):
            self.client_changes.deleted.add(topic_id)
        if row.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            self.client_changes.known.discard(topic_id)

    async def _grow(self, connection: Connection, name: str) -> None:
        self.client_changes.growths_asked += 1
        topic = CreatePartitionsTopic(name=name, count=self.random.randrange(2, 9), assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        (row,) = (await connection.call(request, CreatePartitionsResponse)).results
        self.client_changes.growths += self._is_done(row.error_code)

    async def _set(self, connection: Connection, name: str) -> None:
        value = str(HOUR_MS + self.random.getrandbits(48))
        config = AlterableConfig(name=RETENTION, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (row,) = (await connection.call(request, IncrementalAlterConfigsResponse)).responses
        if self._is_done(row.error_code):
            self.client_changes.values.add(value)

    def _is_done(self, code: int) -> bool:
        self.client_changes.errors[code] += 1
        return code == 0

    # Faults

    async def inject_until(self, over: Callable[[], bool]) -> None:
        """Inject random faults, one after the other."""
        faults = self.faults
        kinds: list[FaultAction] = [
            faults.kill_server,
            faults.pause_server,
            faults.kill_broker,
            faults.pause_broker,
            faults.cut_off_broker,
            faults.cut_off_from_zookeeper,
            faults.cut_off_server,
            faults.halve,
        ]
        while not over():
            await trio.sleep(self.random.random() * 2)
            await trio.to_thread.run_sync(faults.strike, self.random.choice(kinds))

    # Checks afterwards

    async def check(self, witness: Witness) -> None:
        client_changes = self.client_changes
        with trio.fail_after(SETTLED_WITHIN_S):
            for broker in self.brokers:
                await self._wait_for_metadata(broker, partial(view_of_witness, witness))
        assert witness.loads == 1, "the witness has missed changes"
        assert set(witness.created.values()) <= {1}
        assert set(witness.deleted.values()) <= {1}
        assert client_changes.created <= witness.created.keys()
        assert client_changes.deleted <= witness.deleted.keys() <= client_changes.asked_to_delete
        values = Counter(value for _, value in witness.values.elements())
        assert set(values.values()) <= {1}
        assert client_changes.values <= values.keys()
        assert client_changes.growths <= witness.grown <= client_changes.growths_asked

    async def _wait_for_metadata(self, broker: Kafkawire, expected: Callable[[], object]) -> None:
        """Wait until the broker reports the expected metadata. Both the broker and the witness may be behind for a
        while."""
        found: object = None
        with trio.move_on_after(SETTLED_WITHIN_S / 2):
            while True:
                with suppress(ClientError, trio.TooSlowError), trio.fail_after(ANSWER_WITHIN_S):
                    async with connected(broker) as connection:
                        found = await view_of_broker(connection)
                if found == expected():
                    return
                await trio.sleep(0.2)
        assert found == expected()


MetadataView = dict[str, tuple[bytes, str | None, list[tuple[int, int, list[int], list[int]]]]]


def view_of_witness(witness: Witness) -> MetadataView:
    return {
        topic.name: (
            topic.topic_id,
            topic.configs.get(RETENTION),
            [(one.leader, one.leader_epoch, list(one.replicas), list(one.isr)) for one in topic.partitions],
        )
        for topic in witness.image.topics.values()
    }


async def view_of_broker(connection: Connection) -> MetadataView:
    """Topics with their configs and partitions, as one broker tells."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    topics = (await connection.call(request, MetadataResponse)).topics
    names = [topic.name or "" for topic in topics]
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[RETENTION])
        for name in names
    ]
    described = (await connection.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)).results
    values = {
        row.resource_name: next((one.value for one in row.configs if one.config_source == 1), None) for row in described
    }
    return {
        topic.name or "": (
            topic.topic_id,
            values[topic.name or ""],
            [
                (one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes)
                for one in sorted(topic.partitions, key=lambda one: one.partition_index)
            ],
        )
        for topic in topics
    }


@asynccontextmanager
async def connected(broker: Kafkawire) -> AsyncIterator[Connection]:
    """Raises ClientError."""
    connection = await Connection.open(Address(broker.ip, broker.port), connect_tcp)
    try:
        yield connection
    finally:
        await connection.aclose()


def run(directory: Path, seed: int, changes: int) -> Campaign:
    """Run the campaign until so many changes are acknowledged. Raises AssertionError for each violation."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        stack.enter_context(inside(network.hub))
        hosts = [network.add() for _ in range(3)]
        ensemble = stack.enter_context(zookeeper_ensemble(directory / "zookeeper", hosts=hosts))
        campaign = Campaign(directory, network, ensemble, seed)
        stack.enter_context(campaign.cluster)
        trio.run(_run, campaign, changes)
    return campaign


async def _run(campaign: Campaign, changes: int) -> None:
    store = await open_zookeeper(ZooKeeperSettings(campaign.ensemble.connect))
    witness = Witness(store, 0, campaign.random)
    witness.begin()
    await witness.load((await store.get(paths.CLUSTER)).value.decode())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(witness.follow)
        async with trio.open_nursery() as working:
            for _ in range(CLIENTS):
                working.start_soon(campaign.change_until, changes)
            working.start_soon(campaign.inject_until, lambda: campaign.client_changes.changes >= changes)
        await campaign.check(witness)
        nursery.cancel_scope.cancel()
    await store.close()
