"""A member of a group by aiokafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from compat_tests.features.groups.driver import (
    POLL_S,
    Client,
    Partition,
    Rebalances,
    Record,
    main,
    named,
    property_name,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}

PATIENCE = 200  # questions, one every POLL_S


class Listener(Rebalances, ConsumerRebalanceListener):  # type: ignore[misc]
    """Listener that reports every rebalance."""


class AiokafkaClient(Client):
    """The consumer. The library needs an event loop, which only runs while one of these methods runs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(settings))

    async def _start(self, settings: dict[str, Any]) -> None:
        properties = {property_name(key): value for key, value in settings["properties"].items()}
        assignor = ASSIGNORS[properties.pop("partition_assignment_strategy")]
        self._consumer = AIOKafkaConsumer(
            enable_auto_commit=False, partition_assignment_strategy=(assignor,), **properties
        )
        self._consumer.subscribe(
            topics=settings["topics"] or (), pattern=settings["pattern"] or None, listener=Listener()
        )
        await self._consumer.start()

    def poll(self) -> list[Record]:
        batches = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=round(POLL_S * 1000)))
        return records_of(batches)

    def assignment(self) -> list[Partition]:
        return named(self._consumer.assignment())

    def commit(self, offsets: dict[Partition, int], metadata: str) -> None:
        rows = {TopicPartition(*partition): (offset, metadata) for partition, offset in offsets.items()}
        self._loop.run_until_complete(self._consumer.commit(rows))

    def committed(self, partition: Partition) -> tuple[int, str] | None:
        """The committed offset and metadata, asked from the coordinator: the public method gives the offset alone.

        The library ignores an error of the whole group: while the coordinator loads, nothing seems to be committed.
        """
        asked = TopicPartition(*partition)
        for _ in range(PATIENCE):
            found = self._loop.run_until_complete(self._consumer._coordinator.fetch_committed_offsets([asked]))
            if asked in found:
                return (found[asked].offset, found[asked].metadata)
            self.idle(POLL_S)
        return None

    def _call(self, use: Callable[[], None]) -> None:
        """Call a method on the event loop: some methods wake its tasks."""

        async def called() -> None:
            use()

        self._loop.run_until_complete(called())

    def seek(self, partition: Partition, offset: int) -> None:
        self._call(lambda: self._consumer.seek(TopicPartition(*partition), offset))

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._call(lambda: self._consumer.pause(*(TopicPartition(*each) for each in partitions)))

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._call(lambda: self._consumer.resume(*(TopicPartition(*each) for each in partitions)))

    def idle(self, seconds: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


if __name__ == "__main__":
    main(AiokafkaClient)
