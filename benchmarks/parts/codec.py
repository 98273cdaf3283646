"""Cost of decoding and encoding the messages of hot APIs: microseconds per message, best of seven rounds.

python -m benchmarks.parts.codec
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable, Sequence

from kafkawire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kafkawire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkawire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafkawire.wire.message import Message

ROUNDS = 7
ROUND_S = 0.02  # the approximate length of a round
TOY_ROUND_S = 0.0  # an action is called once


def microseconds(action: Callable[[], object], round_s: float) -> float:
    """The fastest of several rounds: on a shared machine the others measure other processes."""
    once = timeit.timeit(action, number=3) / 3
    number = max(1, int(round_s / once))
    return min(timeit.repeat(action, number=number, repeat=ROUNDS)) / number * 1e6


def produce_request(size_bytes: int) -> ProduceRequest:
    """A request for one topic and one partition."""
    data = PartitionProduceData(index=0, records=memoryview(bytes(size_bytes)))
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def produce_response(partitions: int) -> ProduceResponse:
    """A response for one topic with so many partitions."""
    rows = [PartitionProduceResponse(index=index) for index in range(partitions)]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])


def fetch_request(partitions: int) -> FetchRequest:
    """A request for one topic with so many partitions."""
    rows = [FetchPartition(partition=index, fetch_offset=1000) for index in range(partitions)]
    return FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic="t", partitions=rows)])


def fetch_response(partitions: int, size_bytes: int) -> FetchResponse:
    """A response for one topic, with records of so many partitions."""
    rows = [PartitionData(partition_index=index, records=bytes(size_bytes)) for index in range(partitions)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)])


def metadata_request(topics: int) -> MetadataRequest:
    """A request for so many topics by name."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{index}") for index in range(topics)])


def metadata_response(topics: int, partitions: int) -> MetadataResponse:
    """A response with topics of so many partitions each, on three replicas."""
    nodes = [1, 2, 3]
    rows = [
        MetadataResponsePartition(partition_index=index, replica_nodes=nodes, isr_nodes=nodes)
        for index in range(partitions)
    ]
    return MetadataResponse(topics=[MetadataResponseTopic(name=f"topic-{n}", partitions=rows) for n in range(topics)])


CASES: list[tuple[str, Message, int]] = [
    ("Produce, 1 KiB", produce_request(1024), 9),
    ("Produce, 1 KiB", produce_request(1024), 11),
    ("Produce, 1 MiB", produce_request(1024 * 1024), 9),
    ("ProduceResponse, 1 partition", produce_response(1), 9),
    ("ProduceResponse, 100 partitions", produce_response(100), 9),
    ("Fetch, 1 partition", fetch_request(1), 12),
    ("Fetch, 100 partitions", fetch_request(100), 12),
    ("Fetch, 1000 partitions", fetch_request(1000), 12),
    ("FetchResponse, 10 x 1 KiB", fetch_response(10, 1024), 12),
    ("FetchResponse, 10 x 100 KiB", fetch_response(10, 100 * 1024), 12),
    ("Metadata, 1 topic", metadata_request(1), 12),
    ("Metadata, 100 topics", metadata_request(100), 12),
    ("MetadataResponse, 1000 topics x 1", metadata_response(1000, 1), 12),
    ("MetadataResponse, 1 topic x 1000", metadata_response(1, 1000), 12),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="shows that it works, no more")
    round_s = TOY_ROUND_S if parser.parse_args(arguments).toy else ROUND_S
    print(f"{'message':34} version  decode us  encode us")
    for title, message, version in CASES:
        frame = bytearray(b"".join(message.encode(version)))
        decode_us = microseconds(lambda: type(message).decode(frame, version), round_s)  # noqa: B023
        encode_us = microseconds(lambda: message.encode(version), round_s)  # noqa: B023
        print(f"{title:34} {version:7} {decode_us:10.2f} {encode_us:10.2f}")


if __name__ == "__main__":
    main()
