"""A FakeCluster whose topics and configs can be changed."""

from __future__ import annotations

from typing import Any

from kafkawire.client.connection import Address
from kafkawire.client.tests.fake_cluster import FakeCluster, FakeLog
from kafkawire.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    unregister_broker,
)
from kafkawire.messages import describe_topic_partitions as describe_topics
from kafkawire.messages import incremental_alter_configs as alter_configs
from kafkawire.requests.errors import ErrorCode
from kafkawire.wire.message import Message

TOPIC, BROKER = 2, 4
DEFAULTS = {TOPIC: {"cleanup.policy": "delete", "retention.ms": "604800000"}, BROKER: {"num.partitions": "1"}}
SOURCES = {TOPIC: 1, BROKER: 2}


class FakeAdmin(FakeCluster):
    """`configs` has the configs that are set, by resource type and name.

    Only the controller, broker 1, takes changes.
    """

    def __init__(self, broker_count: int = 1) -> None:
        super().__init__(broker_count)
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.fenced: set[int] = set()
        self.log_dirs: dict[int, list[describe_log_dirs.DescribeLogDirsResult]] = {}
        self.eligible: dict[tuple[str, int], list[int]] = {}  # by topic and partition
        self._answers |= {
            19: self._create_topics,
            20: self._delete_topics,
            32: self._describe_configs,
            35: self._describe_log_dirs,
            37: self._create_partitions,
            44: self._alter_configs,
            60: self._describe_cluster,
            64: self._unregister_broker,
            75: self._describe_topic_partitions,
        }

    def _describe_cluster(self, address: Address, request: Any, version: int) -> Message:
        return describe_cluster.DescribeClusterResponse(
            error_code=self._refusal(60),
            error_message=None,
            controller_id=1,
            brokers=[
                describe_cluster.DescribeClusterBroker(
                    broker_id=node, host=one.host, port=one.port, rack=f"rack-{node}", is_fenced=node in self.fenced
                )
                for node, one in self.addresses.items()
                if node not in self.fenced or request.include_fenced_brokers
            ],
        )

    def _describe_topic_partitions(self, address: Address, request: Any, version: int) -> Message:
        """Answer one partition a page, in the order of names."""
        rows = [(one.name, number) for one in request.topics for number, _ in enumerate(self.topics[one.name])]
        cursor = request.cursor
        first = 0 if cursor is None else rows.index((cursor.topic_name, cursor.partition_index))
        name, number = rows[first]
        row = describe_topics.DescribeTopicPartitionsResponsePartition(
            partition_index=number, eligible_leader_replicas=self.eligible.get((name, number), [])
        )
        answer = describe_topics.DescribeTopicPartitionsResponse(
            topics=[describe_topics.DescribeTopicPartitionsResponseTopic(name=name, partitions=[row])]
        )
        if first + 1 < len(rows):
            name, number = rows[first + 1]
            answer.next_cursor = describe_topics.ResponseCursor(topic_name=name, partition_index=number)
        return answer

    def _unregister_broker(self, address: Address, request: Any, version: int) -> Message:
        code = self._refusal(64)
        if not code and request.broker_id not in self.addresses:
            code = ErrorCode.BROKER_ID_NOT_REGISTERED
        if not code:
            del self.addresses[request.broker_id]
        return unregister_broker.UnregisterBrokerResponse(error_code=code)

    def _describe_log_dirs(self, address: Address, request: Any, version: int) -> Message:
        assert request.topics is None
        (node,) = (node for node, one in self.addresses.items() if one == address)
        return describe_log_dirs.DescribeLogDirsResponse(
            error_code=self._refusal(35), results=self.log_dirs.get(node, [])
        )

    def _create_topics(self, address: Address, request: Any, version: int) -> Message:
        refused = self._refusal(19)
        return create_topics.CreateTopicsResponse(
            topics=[
                create_topics.CreatableTopicResult(
                    name=one.name,
                    error_code=refused or self._create(address, one, validate_only=request.validate_only),
                    error_message=None,
                )
                for one in request.topics
            ]
        )

    def _create(self, address: Address, topic: Any, *, validate_only: bool) -> int:
        assert address == self.addresses[1]
        if topic.name in self.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        if not validate_only:
            self.topics[topic.name] = [FakeLog() for _ in range(max(1, topic.num_partitions))]
            self.configs[TOPIC, topic.name] = {one.name: one.value for one in topic.configs}
        return 0

    def _delete_topics(self, address: Address, request: Any, version: int) -> Message:
        assert address == self.addresses[1]
        names = [one.name for one in request.topics] if version >= 6 else request.topic_names
        return delete_topics.DeleteTopicsResponse(
            responses=[
                delete_topics.DeletableTopicResult(
                    name=name,
                    error_code=0 if self.topics.pop(name, None) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=None,
                )
                for name in names
            ]
        )

    def _create_partitions(self, address: Address, request: Any, version: int) -> Message:
        assert address == self.addresses[1]
        return create_partitions.CreatePartitionsResponse(
            results=[self._grow(one, validate_only=request.validate_only) for one in request.topics]
        )

    def _grow(self, topic: Any, *, validate_only: bool) -> create_partitions.CreatePartitionsTopicResult:
        row = create_partitions.CreatePartitionsTopicResult(name=topic.name, error_message=None)
        logs = self.topics.get(topic.name)
        if logs is None:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif topic.count <= len(logs):
            row.error_code = ErrorCode.INVALID_PARTITIONS
            row.error_message = f"Topic already has {len(logs)} partition(s)."
        elif not validate_only:
            logs += [FakeLog() for _ in range(topic.count - len(logs))]
        return row

    def _describe_configs(self, address: Address, request: Any, version: int) -> Message:
        (one,) = request.resources
        result = describe_configs.DescribeConfigsResult(
            resource_type=one.resource_type, resource_name=one.resource_name, error_message=None
        )
        if one.resource_type == TOPIC and one.resource_name not in self.topics:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            if one.resource_type == BROKER and one.resource_name:
                assert address == self.addresses[int(one.resource_name)]
            found = self._configs_of(one.resource_type, self.configs.get((one.resource_type, one.resource_name), {}))
            result.configs = [row for row in found if one.configuration_keys in (None, [row.name])]
        return describe_configs.DescribeConfigsResponse(results=[result])

    def _configs_of(self, kind: int, own: dict[str, str]) -> list[describe_configs.DescribeConfigsResourceResult]:
        return [
            describe_configs.DescribeConfigsResourceResult(
                name=name,
                value=value,
                config_source=SOURCES[kind] if name in own else 5,
                synonyms=[describe_configs.DescribeConfigsSynonym(name=name, value=value, source=5)],
                config_type=2,
                documentation="What it is for.",
            )
            for name, value in (DEFAULTS[kind] | own).items()
        ]

    def _alter_configs(self, address: Address, request: Any, version: int) -> Message:
        (one,) = request.resources
        refused = self._refusal(44)
        row = alter_configs.AlterConfigsResourceResponse(
            resource_type=one.resource_type,
            resource_name=one.resource_name,
            error_code=refused,
            error_message="not so" if refused else None,
        )
        if not refused and not request.validate_only:
            own = self.configs.setdefault((one.resource_type, one.resource_name), {})
            for change in one.configs:
                if change.config_operation == 1:
                    own.pop(change.name, None)
                else:
                    own[change.name] = change.value
        return alter_configs.IncrementalAlterConfigsResponse(responses=[row])
