"""The administrator: creates the topics, deletes and recreates some under load, moves log starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import trio

from kafkawire.handlers import API_TABLE
from kafkawire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.history import Place, RecordsDeletion, TopicLife
from kafkawire.tests.simulation.network import LOST
from kafkawire.tests.simulation.plan import TopicPlan
from kafkawire.tests.simulation.shared import Shared

NAME = "admin"
TIMEOUT_MS = 20_000
DELETES_RECORDS = any(api.name == "delete_records" for api in API_TABLE)


def creation_of(plan: TopicPlan) -> CreateTopicsRequest:
    """The request that creates the topic."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in plan.configs.items()]
    topic = CreatableTopic(
        name=plan.name,
        num_partitions=plan.partition_count,
        replication_factor=plan.replication_factor,
        configs=configs,
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


@dataclass
class Admin:
    """The administrator's client. `pause_s`: its pause between two actions."""

    shared: Shared
    pause_s: float
    _rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = self.shared.rng(NAME)

    async def run(self) -> None:
        while not self.shared.is_over:
            await trio.sleep(self._rng.expovariate(1 / self.pause_s))
            name = self._rng.choice(sorted(self.shared.plans))
            if self.shared.plans[name].is_volatile:
                await self.delete(name)
                await trio.sleep(self._rng.uniform(0, 0.1))
                await self.create(self.shared.plans[name])
            elif DELETES_RECORDS:
                await self.delete_records(name)

    async def create(self, plan: TopicPlan) -> None:
        """Create a topic, and retry until it exists."""
        history = self.shared.history
        invoked = history.tick()
        answer = await self.shared.insist(NAME, self._rng, creation_of(plan), 7)
        row = answer.topics[0]
        topic_id = row.topic_id
        if row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            topic_id = await self._find_id(plan.name)
        elif row.error_code:
            history.troubles.append(f"{plan.name} is not created: {ErrorCode(row.error_code).name} {row.error_message}")
            return
        life = TopicLife(topic_id, plan.name, plan.is_sync, plan.partition_count, invoked, history.tick())
        life.retention_ms = plan.retention_ms
        life.is_compacted = plan.is_compacted
        life.is_tiered = plan.is_tiered
        history.topics[topic_id] = life
        self.shared.topics[plan.name] = life
        history.note("created", plan.name, topic_id)

    async def _find_id(self, name: str) -> bytes:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = await self.shared.insist(NAME, self._rng, request, 12)
        return bytes(answer.topics[0].topic_id)

    async def delete(self, name: str) -> None:
        """Delete a topic, and retry until it is gone."""
        history = self.shared.history
        life = self.shared.topics.pop(name)
        life.deletion_invoked = history.tick()
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        while True:
            answer = await self.shared.insist(NAME, self._rng, request, 5)
            code = answer.responses[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
            await trio.sleep(0.05)
        life.deleted = history.tick()
        history.note("deleted", name)

    async def delete_records(self, name: str) -> None:
        """Move the log start of one partition to an offset below the high watermark. It is tried once."""
        history = self.shared.history
        life = self.shared.topics[name]
        place = Place(life.topic_id, self._rng.randrange(life.partition_count))
        known = [read.high_watermark for read in history.reads if read.place == place and not read.error]
        offset = self._rng.randint(0, max(known, default=0))
        partition = DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=TIMEOUT_MS
        )
        connection = await self.shared.connected(NAME, self._rng)
        deletion = RecordsDeletion(place, offset, history.tick())
        history.deletions.append(deletion)
        try:
            answer = await self.shared.ask(connection, request, 2)
        except LOST:
            return
        finally:
            self.shared.network.disconnect(connection)
        row = answer.topics[0].partitions[0]
        if not row.error_code:
            deletion.completed = history.tick()
            deletion.log_start_offset = row.low_watermark
        history.note("records deleted", name, place.partition, offset, row.error_code, row.low_watermark)
