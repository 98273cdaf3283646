"""Producer and Consumer: retries, results and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from engine.batches.batch import HEADER_SIZE_BYTES, Codec, Record, RecordHeader, build_batch, parse_header, seal_batch
from engine.batches.codecs import DECOMPRESSED_MAX_BYTES, compress
from kafkawire.client import consumer as consumer_module
from kafkawire.client.cluster import Cluster
from kafkawire.client.consumer import ConsumedRecord, Consumer
from kafkawire.client.errors import ClientError, Refusal
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.producer import BATCH_MAX_BYTES, Producer, in_rounds, record_size_max_bytes
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.client.tests.fake_records import FakeRecords
from kafkawire.client.tests.test_against_broker import cluster_of, create
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.list_offsets import ListOffsetsRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import EPOCH_MS, open_broker

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
CONTROL_ATTRIBUTE = 1 << 5


def fake_cluster() -> FakeRecords:
    """`orders` has two partitions, each led by another broker."""
    fake = FakeRecords(2)
    fake.topics["orders"] = [FakeLog(leader=1), FakeLog(leader=2)]
    return fake


def reachable(fake: FakeRecords) -> Cluster:
    return Cluster(fake.bootstrap, fake.connect)


def unheard(text: str) -> None:
    raise AssertionError(text)


def values(consumer_batches: list[consumer_module.Batch]) -> list[tuple[int, bytes | None]]:
    return [(one.offset, one.value) for batch in consumer_batches for one in batch.records()]


@pytest.mark.parametrize("codec", Codec)
async def test_records_sent_to_a_broker_are_read_back(codec: Codec) -> None:
    headers = (RecordHeader(b"a", b"\xff"), RecordHeader(b"a", None))
    records = [Record(b"k%d" % number, None, EPOCH_MS + number, headers) for number in range(3)]
    async with open_broker() as real, cluster_of(real) as cluster:
        await create(cluster)
        producer = Producer(cluster, codec)
        assert await producer.send({FIRST: records, SECOND: records[:1]}) == {FIRST: 0, SECOND: 0}
        assert await producer.send({FIRST: records}) == {FIRST: 3}
        reader = Consumer(cluster, {FIRST: 1, SECOND: 0}, unheard)
        found = [one for batch in await reader.poll() for one in batch.records()]
        assert reader.positions == {FIRST: 6, SECOND: 1}
        assert found[0] == ConsumedRecord(FIRST, 1, EPOCH_MS + 1, False, b"k1", None, headers)
        assert [one.offset for one in found] == [1, 2, 3, 4, 5, 0]
        assert await reader.poll() == []


async def test_an_answer_that_got_lost_stores_nothing_twice() -> None:
    fake = fake_cluster()
    fake.lose = [ProduceRequest.API_KEY, InitProducerIdRequest.API_KEY]
    async with reachable(fake) as cluster:
        producer = Producer(cluster)
        assert await producer.send({FIRST: [Record(value=b"1")], SECOND: [Record(value=b"2")]}) == {FIRST: 0, SECOND: 0}
        assert await producer.send({FIRST: [Record(value=b"3")]}) == {FIRST: 1}
    assert [len(fake.batches["orders", number]) for number in (0, 1)] == [2, 1]


async def test_a_send_callback_runs_once_as_soon_as_its_partition_is_stored() -> None:
    """The callback comes before another partition is done, and once in spite of a lost connection."""
    fake = fake_cluster()
    fake.short_of_replicas.add(FIRST)
    stored: list[tuple[TopicPartition, int, int]] = []

    async def send() -> None:
        records = {FIRST: [Record(value=b"1")], SECOND: [Record(value=b"2"), Record(value=b"3")]}
        sent = await producer.send(records, lambda one, offset, batch: stored.append((one, offset, len(batch))))
        assert sent == {FIRST: 0, SECOND: 0}

    async with reachable(fake) as cluster:
        producer = Producer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.sleep(5)
            assert stored == [(SECOND, 0, 2)]
            fake.lose = [ProduceRequest.API_KEY]
            fake.short_of_replicas.clear()
        assert stored == [(SECOND, 0, 2), (FIRST, 0, 1)]
        to_second = [one for address, one, _ in fake.requests if address == fake.addresses[2]]
        assert [type(one) for one in to_second].count(ProduceRequest) == 1
        assert await producer.send({FIRST: [Record()], SECOND: [Record()]}) == {FIRST: 1, SECOND: 2}


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
)
async def test_a_retriable_error_is_retried_until_the_send_succeeds(code: ErrorCode) -> None:
    fake = fake_cluster()
    fake.refuse(InitProducerIdRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    fake.refuse(ProduceRequest, *[code] * 8)
    async with reachable(fake) as cluster:
        assert await Producer(cluster).send({FIRST: [Record(value=b"1")]}) == {FIRST: 0}
    assert len(fake.requests_of(ProduceRequest)) == 9


async def test_a_final_error_is_returned_and_the_next_batch_stays_in_sequence() -> None:
    fake = fake_cluster()
    fake.refuse(ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE)
    async with reachable(fake) as cluster:
        producer = Producer(cluster)
        refused = (await producer.send({FIRST: [Record(value=b"1")]}))[FIRST]
        assert isinstance(refused, Refusal)
        assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
        assert await producer.send({FIRST: [Record(value=b"2")]}) == {FIRST: 0}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_batch_that_is_too_large_is_halved_and_stays_in_order(codec: Codec) -> None:
    """The same if the replies to the second parts get lost."""
    fake = fake_cluster()
    fake.batch_max_bytes = 200
    records = [Record(value=b"%d" % number) for number in range(100)]
    stored: list[Record] = []

    def note(one: TopicPartition, offset: int, part: Sequence[Record]) -> None:
        if one == FIRST:
            assert offset == len(stored)
            stored.extend(part)
            fake.lose = [ProduceRequest.API_KEY]

    async with reachable(fake) as cluster:
        producer = Producer(cluster, codec)
        assert await producer.send({FIRST: records, SECOND: records[:1]}, note) == {FIRST: 0, SECOND: 0}
        assert await producer.send({FIRST: records, SECOND: records[:1]}, note) == {FIRST: 100, SECOND: 1}
        assert stored == records * 2
        assert len(fake.batches["orders", 0]) >= 8
        found = values(await Consumer(cluster, {FIRST: 0}, unheard).poll())
        assert found == [(offset, one.value) for offset, one in enumerate(stored)]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
async def test_a_record_that_is_too_large_alone_is_refused_and_nothing_after_it_is_sent(code: ErrorCode) -> None:
    fake = fake_cluster()
    fake.refuse(ProduceRequest, code, 0, code, code)
    records = [Record(value=b"%d" % number) for number in range(6)]
    stored: list[tuple[int, int]] = []
    async with reachable(fake) as cluster:
        producer = Producer(cluster)
        outcomes = await producer.send({FIRST: records}, lambda one, offset, part: stored.append((offset, len(part))))
        refused = outcomes[FIRST]
        assert isinstance(refused, Refusal)
        assert refused.code == code
        assert stored == [(0, 3)]
        assert len(fake.requests_of(ProduceRequest)) == 4
        assert await producer.send({FIRST: records[:1]}) == {FIRST: 3}


async def test_no_producer_id_is_given() -> None:
    fake = fake_cluster()
    fake.refuse(InitProducerIdRequest, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    async with reachable(fake) as cluster:
        with pytest.raises(ClientError, match="no producer id: not authorized for the cluster"):
            await Producer(cluster).send({FIRST: [Record(value=b"1")]})


async def test_leaders_are_remembered_until_they_lead_no_longer() -> None:
    fake = fake_cluster()
    async with reachable(fake) as cluster:
        producer, reader = Producer(cluster), Consumer(cluster, {FIRST: 0, SECOND: 0}, unheard)
        for number in range(3):
            assert await producer.send({FIRST: [Record(value=b"v")], SECOND: [Record()]}) == {
                FIRST: number,
                SECOND: number,
            }
            assert values(await reader.poll()) == [(number, b"v"), (number, None)]
        assert len(fake.requests_of(MetadataRequest)) == 1
        fake.topics["orders"][0].leader = 2
        assert await producer.send({FIRST: [Record(value=b"moved")]}) == {FIRST: 3}
        assert values(await reader.poll()) == [(3, b"moved")]
        assert len(fake.requests_of(MetadataRequest)) == 2
        fake.lose = [ProduceRequest.API_KEY]
        fake.topics["orders"][0].leader = 1
        assert await producer.send({FIRST: [Record(value=b"lost")]}) == {FIRST: 4}
        assert [address.host for address, _, _ in fake.requests[-3:]] == ["kafka-1", "kafka-1", "kafka-1"]
        assert len(fake.requests_of(MetadataRequest)) == 3


async def test_a_broker_that_comes_back_is_found_again_or_the_deadline_ends_it() -> None:
    fake = fake_cluster()
    async with reachable(fake) as cluster:
        producer = Producer(cluster)
        await producer.send({FIRST: [Record(value=b"1")]})
        fake.lose = [ProduceRequest.API_KEY]
        fake.unreachable.update(fake.bootstrap)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, {FIRST: [Record(value=b"2")]})
            await trio.sleep(5)
            fake.unreachable.clear()
        assert fake.topics["orders"][0].end == 2
        fake.unreachable.update(fake.bootstrap)
        fake.lose = [ProduceRequest.API_KEY]
        with pytest.raises(ClientError, match=r"not done after 5 s, waiting for .*Connection refused"):
            await cluster.run_within(5, lambda: producer.send({FIRST: [Record(value=b"3")]}))


def test_rounds_are_bounded_and_in_order() -> None:
    large = Record(value=bytes(BATCH_MAX_BYTES // 2 - 100))
    huge = Record(b"k", bytes(BATCH_MAX_BYTES), 0, (RecordHeader(b"name", b"value"),))
    sent = [(FIRST, large), (FIRST, large), (SECOND, large), (FIRST, large), (FIRST, huge)]
    assert list(in_rounds(sent)) == [{FIRST: [large, large], SECOND: [large]}, {FIRST: [large]}, {FIRST: [huge]}]
    assert list(in_rounds([])) == []
    for record in (large, huge, Record()):
        assert len(build_batch([record])) - HEADER_SIZE_BYTES <= record_size_max_bytes(record)


async def test_control_batches_and_gaps_are_passed_over() -> None:
    fake = fake_cluster()
    fake.store("orders", 0, build_batch([Record(value=b"0")]))
    fake.store("orders", 0, build_batch([Record(b"\0\0\0\1", b"")], attributes=CONTROL_ATTRIBUTE))
    del fake.batches["orders", 0][0]
    fake.store("orders", 0, build_batch([Record(value=b"2")]))
    async with reachable(fake) as cluster:
        reader = Consumer(cluster, {FIRST: 0}, unheard)
        assert values(await reader.poll()) == [(2, b"2")]
        assert reader.positions == {FIRST: 3}
        reader.drop_finished({FIRST: 4})
        assert reader.positions == {FIRST: 3}
        reader.drop_finished({FIRST: 3})
        assert reader.positions == {}


async def test_a_reply_that_is_cut_off_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_cluster()
    for number in range(3):
        fake.store("orders", 0, build_batch([Record(value=b"%d" % number)]))
    for size_bytes in (1, len(fake.batches["orders", 0][0]) + 65):
        monkeypatch.setattr(consumer_module, "PARTITION_MAX_BYTES", size_bytes)
        async with reachable(fake) as cluster:
            reader = Consumer(cluster, {FIRST: 0}, unheard)
            found = [values(await reader.poll()) for _ in range(3)]
            assert found == [[(number, b"%d" % number)] for number in range(3)]


async def test_a_consumer_below_the_log_start_continues_at_the_earliest_offset() -> None:
    fake = fake_cluster()
    for number in range(3):
        fake.store("orders", 0, build_batch([Record(value=b"%d" % number)]))
    remarks: list[str] = []
    async with reachable(fake) as cluster:
        reader = Consumer(cluster, {FIRST: 0}, remarks.append)
        fake.topics["orders"][0].start = 2
        assert await reader.poll() == []
        assert values(await reader.poll()) == [(2, b"2")]
        assert remarks == ["orders-0 has no offset 0 any more: 2 is taken"]
        fake.refuse(FetchRequest, ErrorCode.OFFSET_OUT_OF_RANGE)
        fake.refuse(ListOffsetsRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ClientError, match="orders-0: not authorized"):
            await reader.poll()


async def test_a_refusal_to_read() -> None:
    fake = fake_cluster()
    fake.refuse(FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with reachable(fake) as cluster:
        with pytest.raises(ClientError, match="orders-0: not authorized for the topic"):
            await Consumer(cluster, {FIRST: 0}, unheard).poll()


def bomb() -> bytearray:
    """A small batch of one record whose declared size is large."""
    plain = parse_header(build_batch([Record(value=b"v")]))
    return seal_batch(
        compress(Codec.ZSTD, bytes(DECOMPRESSED_MAX_BYTES + 1)),
        record_count=1,
        base_offset=0,
        leader_epoch=0,
        attributes=Codec.ZSTD,
        timestamps_ms=(plain.base_timestamp_ms, plain.max_timestamp_ms),
        producer=(-1, -1, -1),
    )


def flipped() -> bytearray:
    batch = build_batch([Record(value=b"v")])
    batch[-2] ^= 1
    return batch


def old() -> bytearray:
    batch = build_batch([Record(value=b"v")])
    batch[16] = 1
    return batch


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (bomb(), "orders-0: the batch at offset 0: records grow beyond"),
        (flipped(), "orders-0: the batch at offset 0 does not match its CRC"),
        (old(), "orders-0: records at offset 0 are of a format before Kafka 0.11"),
        (build_batch([Record(value=b"v")], attributes=5), "unknown compression codec 5"),
        (build_batch([Record(value=b"v")], attributes=Codec.LZ4), "records are not lz4"),
    ],
)
async def test_bytes_that_are_no_records(batch: bytearray, reason: str) -> None:
    fake = fake_cluster()
    fake.store("orders", 0, batch)
    async with reachable(fake) as cluster:
        with pytest.raises(ClientError, match=reason):
            values(await Consumer(cluster, {FIRST: 0}, unheard).poll())
