"""A member of a group by confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from compat_tests.clients.confluent.clients import COORDINATED_ELSEWHERE, TIMEOUT_S, insist
from compat_tests.features.groups.driver import POLL_S, Client, Partition, Record, emit, main

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH = 500


def _named(partitions: Sequence[TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]


class ConfluentClient(Client):
    """Eager or cooperative: without a callback that assigns, librdkafka follows the group's protocol itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        properties = settings["properties"]
        # librdkafka has a name of its own for the interval in which it matches a pattern with the topics again.
        properties["topic.metadata.refresh.interval.ms"] = properties["metadata.max.age.ms"]
        self._consumer = Consumer({"enable.auto.commit": False, "log_level": 3, **properties})
        self._consumer.subscribe(
            [f"^{settings['pattern']}"] if settings["pattern"] else settings["topics"],
            on_assign=lambda _, partitions: emit("assigned", partitions=_named(partitions)),
            on_revoke=lambda _, partitions: emit("revoked", partitions=_named(partitions)),
            on_lost=lambda _, partitions: emit("lost", partitions=_named(partitions)),
        )

    def poll(self) -> list[Record]:
        records: list[Record] = []
        for message in self._consumer.consume(BATCH, POLL_S):
            if message.error() is not None:
                emit("error", error=str(message.error()))
            else:
                records.append((message.topic(), message.partition(), message.offset(), message.value().decode()))
        return records

    def assignment(self) -> list[Partition]:
        return _named(self._consumer.assignment())

    def commit(self, offsets: dict[Partition, int], metadata: str) -> None:
        rows = [TopicPartition(*partition, offset, metadata) for partition, offset in offsets.items()]
        committed = insist(lambda: self._consumer.commit(offsets=rows, asynchronous=False), *COORDINATED_ELSEWHERE)
        for row in committed:
            if row.error is not None:
                raise RuntimeError(row.error)

    def committed(self, partition: Partition) -> tuple[int, str] | None:
        asked = [TopicPartition(*partition)]
        (row,) = insist(lambda: self._consumer.committed(asked, timeout=TIMEOUT_S), *COORDINATED_ELSEWHERE)
        return (row.offset, row.metadata) if row.offset >= 0 else None

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition, offset))

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._consumer.pause([TopicPartition(*each) for each in partitions])

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._consumer.resume([TopicPartition(*each) for each in partitions])

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    main(ConfluentClient)
