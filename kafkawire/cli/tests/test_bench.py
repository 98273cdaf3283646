"""`kafkawire bench` against a cluster in memory: plans, reads and reports. Loads need a network: compat_tests."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner, Result

from engine.batches.batch import Codec, Record, build_batch, parse_header, walk_records
from kafkawire.cli import main
from kafkawire.cli.bench.measurement import BenchmarkResult
from kafkawire.cli.bench.produce import Writing, targets
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import ClientError
from kafkawire.client.load import HEAD_SIZE_BYTES, LoadFailed
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.client.tests.fake_records import FakeRecords
from kafkawire.messages.create_topics import CreateTopicsRequest
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.list_offsets import ListOffsetsRequest
from kafkawire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import decode_request_header, response_header
from kafkawire.wire.message import Message

WRITING = Writing(
    partition_count=None, record_size_bytes=100, batch_size_bytes=1000, connections=2, acks=-1, codec=Codec.NONE
)


@pytest.fixture
def fake() -> FakeRecords:
    """`orders` has three partitions on two brokers."""
    cluster = FakeRecords(2)
    cluster.topics["orders"] = [FakeLog(leader=1), FakeLog(leader=2), FakeLog(leader=1)]
    return cluster


def run(fake: FakeRecords, *arguments: str) -> Result:
    command = ["bench", *arguments, "-b", "kafka-1:9092"]
    return CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)


def sent(frame: bytes | bytearray) -> ProduceRequest:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, start = decode_request_header(frame[4:])
    assert (header.api_key, header.api_version) == (ProduceRequest.API_KEY, 9)
    return ProduceRequest.decode(frame[4:], header.api_version, start)


async def test_connections_share_the_partitions_of_their_brokers(fake: FakeRecords) -> None:
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        found = await targets(cluster, "orders", WRITING, 95)
    partitions = [
        (leader.host, [sent(frame).topic_data[0].partition_data[0].index for frame in requests.frames], requests.count)
        for leader, requests in found
    ]
    assert partitions == [("kafka-1", [0], 2), ("kafka-1", [2], 2), ("kafka-2", [1], 3), ("kafka-2", [1], 3)]
    assert fake.requests_of(CreateTopicsRequest) == []


async def test_few_records_need_few_connections_and_a_topic_is_made(fake: FakeRecords) -> None:
    writing = Writing(
        partition_count=3, record_size_bytes=5000, batch_size_bytes=1000, connections=10, acks=1, codec=Codec.LZ4
    )
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        ((_, requests),) = await targets(cluster, "new", writing, 1)
    assert len(fake.topics["new"]) == 3
    request = sent(requests.frames[0])
    assert (requests.count, request.acks) == (1, 1)
    batch = request.topic_data[0].partition_data[0].records
    assert batch is not None
    assert (parse_header(batch).record_count, parse_header(batch).codec_id) == (1, Codec.LZ4)


async def test_a_partition_without_a_leader(fake: FakeRecords) -> None:
    fake.topics["orders"][1].leader = -1
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(ClientError, match="orders-1: the partition has no leader"):
            await targets(cluster, "orders", WRITING, None)


def test_a_batch_has_as_many_records_as_its_size_says() -> None:
    batch = WRITING.batch()
    values = {bytes(record.value or b"") for record in walk_records(parse_header(batch), memoryview(batch)[61:])}
    assert [len(value) for value in values] == [100] * 10
    assert b"".join(values).isupper()


@pytest.mark.parametrize("name", ["t", "t" * 126, "t" * 127, "t" * 249])
@pytest.mark.parametrize("version", [9, 12])
def test_a_refusal_is_found_in_a_reply(name: str, version: int) -> None:
    requests = WRITING.requests(name, [0], WRITING.batch(), 1)
    for code in (0, ErrorCode.MESSAGE_TOO_LARGE):
        row = PartitionProduceResponse(index=0, error_code=code)
        reply = ProduceResponse(responses=[TopicProduceResponse(name=name, partition_responses=[row])])
        frame = response_header(ProduceRequest.API_KEY, version, 1) + b"".join(reply.encode(version))
        head = frame[: HEAD_SIZE_BYTES - 4]
        if code:
            with pytest.raises(LoadFailed, match=f"topic {name}: MESSAGE_TOO_LARGE"):
                requests.check(head)
        else:
            requests.check(head)


def test_a_topic_is_read_to_its_end(fake: FakeRecords) -> None:
    for partition in range(3):
        for count in (1, 2, 3):
            fake.store("orders", partition, build_batch([Record(value=bytes(100))] * count))
    result = run(fake, "consume", "orders", "--connections", "2", "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["topic"], document["records"]) == ("orders", 18)
    assert document["bytes"] == sum(len(batch) for batches in fake.batches.values() for batch in batches)
    assert document["requests"] == 2
    assert 0 < document["latency_ms"]["p50"] <= document["latency_ms"]["max"]


def test_consume_with_a_record_count_reads_at_least_that_many_records(fake: FakeRecords) -> None:
    for partition in (0, 2):
        for _ in range(10):
            fake.store("orders", partition, build_batch([Record(value=bytes(300_000))]))
    assert 5 <= json.loads(run(fake, "consume", "orders", "--records", "5", "-o", "json").stdout)["records"] < 20


def test_there_is_nothing_to_read(fake: FakeRecords) -> None:
    result = run(fake, "consume", "orders")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["records", "throughput", "latency", "requests"]
    assert "p50 - ms" in result.stdout


@pytest.mark.parametrize("refused", [FetchRequest, ListOffsetsRequest])
def test_consume_ends_with_an_error_when_a_request_is_refused(fake: FakeRecords, refused: type[Message]) -> None:
    fake.store("orders", 0, build_batch([Record(value=b"v")]))
    fake.refuse(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    result = run(fake, "consume", "orders", "--connections", "3")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "not authorized" in result.stderr


def test_bench_refuses_acks_0_and_a_zero_duration_without_a_request(fake: FakeRecords) -> None:
    assert run(fake, "produce", "orders", "--acks", "0").exit_code == 2
    assert run(fake, "consume", "orders", "--duration", "0").exit_code == 2
    assert fake.requests == []


def test_rates() -> None:
    document = BenchmarkResult(1000, 2_000_000, 0.5, [0.001, 0.002, 0.003]).document()
    assert (document["records_per_s"], document["mb_per_s"], document["requests"]) == (2000, 4, 3)
    assert document["latency_ms"] == {"p50": 2, "p99": 3, "p99.9": 3, "max": 3}
    assert not math.isnan(BenchmarkResult(0, 0, 0.0, []).document()["mb_per_s"])
