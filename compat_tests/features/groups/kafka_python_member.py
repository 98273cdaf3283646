"""A member of a group by kafka-python."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaConnectionError

from compat_tests.features.groups.driver import (
    Client,
    Partition,
    Rebalances,
    Record,
    emit,
    main,
    named,
    property_name,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A poll() of 3.0.12 that ends while its member joins may lose the assignment: the member then takes itself for joined,
# as the metadata it joined for are not new any more, and waits for good. So a poll outlasts a join, also on a machine
# that has much else to do.
POLL_S = 2.0
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(Rebalances, ConsumerRebalanceListener):  # type: ignore[misc]
    """Listener that reports every rebalance."""

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        emit("lost", partitions=named(lost))


class KafkaPythonClient(Client):
    """The consumer. Heartbeats come from a thread of the library; the rest happens in poll()."""

    def __init__(self, settings: dict[str, Any]) -> None:
        properties = {property_name(key): value for key, value in settings["properties"].items()}
        assignor = ASSIGNORS[properties.pop("partition_assignment_strategy")]
        self._consumer = KafkaConsumer(enable_auto_commit=False, partition_assignment_strategy=[assignor], **properties)
        self._consumer.subscribe(
            topics=settings["topics"] or (), pattern=settings["pattern"] or None, listener=Listener()
        )

    def poll(self) -> list[Record]:
        try:
            batches = self._consumer.poll(timeout_ms=round(POLL_S * 1000))
        except KafkaConnectionError as error:  # while no broker is there a poll may raise it, and may be repeated
            emit("poll_failed", error=repr(error))
            return []
        return records_of(batches)

    def assignment(self) -> list[Partition]:
        return named(self._consumer.assignment())

    def commit(self, offsets: dict[Partition, int], metadata: str) -> None:
        self._consumer.commit(
            {
                TopicPartition(*partition): OffsetAndMetadata(offset, metadata, -1)
                for partition, offset in offsets.items()
            }
        )

    def committed(self, partition: Partition) -> tuple[int, str] | None:
        found = self._consumer.committed(TopicPartition(*partition), metadata=True)
        return (found.offset, found.metadata) if found is not None else None

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._consumer.pause(*(TopicPartition(*each) for each in partitions))

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._consumer.resume(*(TopicPartition(*each) for each in partitions))

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    main(KafkaPythonClient)
