"""`kafkawire topics`: requests to the cluster, and reports of the answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkawire.cli.common.cluster_command import Report
from kafkawire.client.brokers import describe_brokers
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import refusal
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.replicas import eligible_leaders, replica_lags
from kafkawire.client.topics import NewTopic, TopicResults, create_partitions, create_topics, delete_topics
from kafkawire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kafkawire.requests.errors import ErrorCode

PARTITION_COLUMNS: Final = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC", "ELIGIBLE", "OFFLINE")
DRY_RUN = "nothing was changed: --dry-run"


async def report_list(cluster: Cluster, exclude_internal: bool) -> Report:
    """`topics list`."""
    known = sorted((await cluster.topics(None)).items())
    shown = [(name, topic) for name, topic in known if not (topic.is_internal and exclude_internal)]
    return Report(
        document=[
            {
                "topic": name,
                "topic_id": topic.topic_id.hex(),
                "partitions": len(topic.partitions),
                "replicas": _replicas(topic),
                "internal": topic.is_internal,
            }
            for name, topic in shown
        ],
        columns=("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"),
        rows=[
            (name, len(topic.partitions), _replicas(topic), "yes" if topic.is_internal else "no")
            for name, topic in shown
        ],
    )


def _replicas(topic: MetadataResponseTopic) -> int:
    """The largest number of replicas of a partition."""
    return max((len(row.replica_nodes) for row in topic.partitions), default=0)


@dataclass(frozen=True, slots=True)
class _Row:
    """A partition. `lags` are by broker id; None if they were not asked for."""

    topic: str
    of: MetadataResponsePartition
    eligible: Sequence[int]
    lags: Mapping[int, int] | None

    @property
    def leader(self) -> int | None:
        return self.of.leader_id if self.of.leader_id >= 0 else None

    def document(self) -> dict[str, object]:
        row = self.of
        return {
            "partition": row.partition_index,
            "leader": self.leader,
            "leader_epoch": row.leader_epoch,
            "replicas": row.replica_nodes,
            "in_sync": row.isr_nodes,
            "eligible": self.eligible,
            "offline": row.offline_replicas,
            **({} if self.lags is None else {"lags": {str(one): lag for one, lag in self.lags.items()}}),
        }

    def cells(self) -> Sequence[object]:
        row = self.of
        ids = map(_ids, (row.replica_nodes, row.isr_nodes, self.eligible, row.offline_replicas))
        lags = [] if self.lags is None else [",".join(f"{one}:{lag}" for one, lag in self.lags.items()) or None]
        return self.topic, row.partition_index, self.leader, row.leader_epoch, *ids, *lags


async def report_partitions(cluster: Cluster, names: Collection[str] | None, with_lag: bool = False) -> Report:
    """`topics describe`."""
    known = sorted((await cluster.topics(names)).items())
    found = [(name, topic) for name, topic in known if not topic.error_code]
    eligible = await eligible_leaders(cluster, [name for name, _ in found])
    lags = await replica_lags(cluster, (await describe_brokers(cluster)).values()) if with_lag else None

    def row(name: str, one: MetadataResponsePartition) -> _Row:
        partition = TopicPartition(name, one.partition_index)
        return _Row(name, one, eligible.get(partition, []), None if lags is None else lags.get(partition, {}))

    rows = {name: [row(name, one) for one in _partitions(topic)] for name, topic in found}
    return Report(
        document=[
            {
                "topic": name,
                "topic_id": topic.topic_id.hex(),
                "internal": topic.is_internal,
                "partitions": [one.document() for one in rows[name]],
            }
            for name, topic in found
        ],
        columns=(*PARTITION_COLUMNS, *(("LAGS",) if with_lag else ())),
        rows=[one.cells() for of_topic in rows.values() for one in of_topic],
        problems=[f"topic {name}: {refusal(topic.error_code)}" for name, topic in known if topic.error_code],
    )


def _partitions(topic: MetadataResponseTopic) -> list[MetadataResponsePartition]:
    return sorted(topic.partitions, key=lambda row: row.partition_index)


def _ids(brokers: Sequence[int]) -> str | None:
    return ",".join(map(str, brokers)) or None


async def report_create(cluster: Cluster, topics: Sequence[NewTopic], may_exist: bool, dry_run: bool) -> Report:
    """`topics create`."""
    outcomes = await create_topics(cluster, topics, validate_only=dry_run)
    ignored = ErrorCode.TOPIC_ALREADY_EXISTS if may_exist else None
    return _report("created", outcomes, ignored, DRY_RUN if dry_run else None)


async def report_alter(cluster: Cluster, counts: Mapping[str, int], dry_run: bool) -> Report:
    """`topics alter`."""
    outcomes = await create_partitions(cluster, counts, validate_only=dry_run)
    return _report("altered", outcomes, None, DRY_RUN if dry_run else None)


async def report_delete(cluster: Cluster, names: Collection[str], may_lack: bool) -> Report:
    """`topics delete`."""
    outcomes = await delete_topics(cluster, names)
    return _report("deleted", outcomes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if may_lack else None, None)


def _report(done: str, outcomes: TopicResults, ignored: ErrorCode | None, remark: str | None) -> Report:
    """Report of the outcome of each topic. An error that is `ignored` is shown, and is no problem."""
    rows = sorted(outcomes.items())
    return Report(
        document=[
            {"topic": name, done: answer is None and remark is None, "error": answer and str(answer)}
            for name, answer in rows
        ],
        columns=("TOPIC", "RESULT"),
        rows=[(name, answer or (done if remark is None else "can be " + done)) for name, answer in rows],
        remarks=[remark] if remark else [],
        problems=[f"topic {name}: {answer}" for name, answer in rows if answer and answer.code != ignored],
    )
