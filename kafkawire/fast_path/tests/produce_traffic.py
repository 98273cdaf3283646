"""Generated Produce requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.batches.batch import HEADER_SIZE_BYTES
from kafkawire.fast_path.tests.two_brokers import PARTITIONS, TOPICS
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.headers import encode_request
from kafkawire.tests.harness import NOW_MS, batch
from kafkawire.wire.tests.mutation import wound

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


class ProduceTraffic:
    """Generator of frames, such as clients send, and some that they would not send."""

    def __init__(self, draw: Random, ids: dict[str, bytes]) -> None:
        self._draw = draw
        self._ids = ids
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._correlation_id = 0

    def frame(self) -> bytes:
        draw = self._draw
        self._correlation_id += 1
        version = draw.choice((3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 13))
        topics = [self._topic() for _ in range(draw.choice((1,) * 8 + (2, 3)))]
        request = ProduceRequest(
            transactional_id=None if draw.random() < 0.98 else "tx",
            acks=draw.choice((-1, -1, -1, 1, 1, 0, 2) if draw.random() < 0.2 else (-1, 1)),
            timeout_ms=draw.choice((30_000, 30_000, 1500)),
            topic_data=topics if draw.random() < 0.98 else topics * draw.choice((0, 2)),
        )
        client = draw.choice(("producer-1", "producer-1", "", None, "x" * 200))
        return encode_request(request, version, self._correlation_id, client)

    def _topic(self) -> TopicProduceData:
        draw = self._draw
        topic = draw.choice(
            (*TOPICS, "plain", "plain", "plain", "plain", "unknown" if draw.random() < 0.3 else "plain")
        )
        count = draw.choice((1,) * 12 + (2, 3, 0))
        data = [self._partition(topic, draw.randrange(PARTITIONS + (draw.random() < 0.05))) for _ in range(count)]
        return TopicProduceData(name=topic, topic_id=self._ids.get(topic, bytes(16)), partition_data=data)

    def _partition(self, topic: str, index: int) -> PartitionProduceData:
        draw = self._draw
        options: dict[str, Any] = {}
        if draw.random() < 0.5:
            options = self._idempotent(topic, index)
        values = [draw.randbytes(draw.choice((0, 1, 10, 100, 300))) for _ in range(draw.randint(1, 3))]
        timestamp_ms = NOW_MS if draw.random() < 0.95 else 2**62
        records = batch(*values, timestamp_ms=timestamp_ms, **options)
        if draw.random() < 0.05:
            records[draw.randrange(len(records))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.03:
            records = records * 2
        if draw.random() < 0.03:
            del records[draw.randrange(HEADER_SIZE_BYTES + 5) :]
        return PartitionProduceData(index=index, records=memoryview(records))

    def _idempotent(self, topic: str, index: int) -> dict[str, Any]:
        producer_id = self._draw.randrange(3)
        key = producer_id, topic, index
        sequence = self._sequences.get(key, 0)
        if self._draw.random() < 0.1:
            return {"producer": (producer_id, 0, max(0, sequence - 1))}
        self._sequences[key] = sequence + 1
        return {"producer": (producer_id, 0, sequence)}


def mixed_frames(draw: Random, frame: Callable[[], bytes], produces: ProduceTraffic) -> tuple[list[bytes], int]:
    """Frames of one kind among Produce frames; perhaps one is repeated in a corrupt form.

    And the number of intact ones.
    """
    frames = [frame() for _ in range(draw.choice((1, 1, 4)))]
    count = len(frames)
    if draw.random() < 0.3:
        wounded = bytearray(frames[0])
        wound(wounded, draw)
        frames.append(bytes(wounded))
    frames += [produces.frame() for _ in range(draw.choice((0, 0, 2)))]
    draw.shuffle(frames)
    return frames, count
