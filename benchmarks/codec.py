"""What decoding and encoding the hot messages costs: microseconds per message, best of five.

python benchmarks/codec.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

from kafkawire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kafkawire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def microseconds(action: Callable[[], object], number: int) -> float:
    """Best of five rounds."""
    return min(timeit.repeat(action, number=number, repeat=5)) / number * 1e6


def produce_request(size_bytes: int) -> ProduceRequest:
    """One topic, one partition."""
    data = PartitionProduceData(index=0, records=memoryview(bytes(size_bytes)))
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def fetch_request(partitions: int) -> FetchRequest:
    """One topic with so many partitions."""
    rows = [FetchPartition(partition=index, fetch_offset=1000) for index in range(partitions)]
    return FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic="t", partitions=rows)])


def fetch_response(partitions: int, size_bytes: int) -> FetchResponse:
    """One topic, so many partitions with records."""
    rows = [PartitionData(partition_index=index, records=bytes(size_bytes)) for index in range(partitions)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)])


def main() -> None:
    """Prints one line per message."""
    for size_bytes in (1024, 1024 * 1024):
        frame = bytearray(b"".join(produce_request(size_bytes).encode(9)))
        cost = microseconds(lambda: ProduceRequest.decode(frame, 9), 20_000)  # noqa: B023
        print(f"decode Produce v9 {size_bytes:>8} B {cost:11.2f} us")
    for partitions in (1, 100, 1000):
        frame = bytearray(b"".join(fetch_request(partitions).encode(12)))
        cost = microseconds(lambda: FetchRequest.decode(frame, 12), 20_000 // partitions)  # noqa: B023
        print(f"decode Fetch v12 {partitions:>4} partitions {cost:7.2f} us")
    row = TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(index=0)])
    reply = ProduceResponse(responses=[row])
    print(f"encode ProduceResponse v9       {microseconds(lambda: reply.encode(9), 20_000):7.2f} us")
    fetched = fetch_response(10, 100 * 1024)
    print(f"encode FetchResponse v12 10 x 100 KiB {microseconds(lambda: fetched.encode(12), 5_000):7.2f} us")


if __name__ == "__main__":
    main()
