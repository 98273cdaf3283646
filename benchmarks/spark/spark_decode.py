"""How many records does a core decode for Spark: from Fetch bytes to Arrow columns, with CRC, codec, keys and headers?

For comparison, other Python decoders with the same bytes, which make an object for each record and no columns:
aiokafka's, in memory, and confluent-kafka's, which only its consumer can run, so that it reads from a broker and pays
for a socket, too. Time is CPU time of this process with all its threads: the broker is another one.
"""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import Consumer, TopicPartition

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, MIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import produce_requests
from compat_tests.harness.kafkawire_broker import Kafkawire
from engine.batches.batch import HEADER_SIZE_BYTES, Codec, Record, RecordHeader, build_batch, seal_batch
from engine.batches.codecs import compress
from kafkawire.client.load import Requests
from spark_connectors.records.batches import batches_of
from spark_connectors.records.columns import COLUMNS, schema_of
from spark_connectors.records.decode import decode
from spark_connectors.records.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

COMPARED: Final = "M records/s"
NOW_MS: Final = 1_700_000_000_000
LOG_BYTES: Final = 16 * MIB  # of records before they are compressed
TOY_LOG_BYTES: Final = 64 * KIB
PORTION: Final = 10_000  # records that a consumer is asked for at once
WITHIN_S: Final = 60.0


@dataclass(frozen=True)
class Case:
    """A case: the size of the records, and the bytes of a batch."""

    name: str
    record_size_bytes: int
    batch_size_bytes: int
    codec: Codec = Codec.NONE
    headers: int = 0
    bound: str = ""


SMALL, LARGE, BOUND = 16 * KIB, MIB - 4 * KIB, "at least 1 M records a second and core"
CASES: Final = (
    Case("100 B, batches of 16 KiB", 100, SMALL, bound=BOUND),
    Case("100 B, batches of 1 MiB", 100, LARGE, bound=BOUND),
    *(Case(f"100 B, batches of 16 KiB, {codec.name.lower()}", 100, SMALL, codec) for codec in Codec if codec),
    Case("100 B and two headers, batches of 16 KiB", 100, SMALL, headers=2),
    Case("100 B, one to a batch", 100, 1),
    Case("1 KiB, batches of 16 KiB", KIB, SMALL),
    Case("1 KiB, batches of 1 MiB", KIB, LARGE),
    Case("1 KiB, batches of 1 MiB, zstd", KIB, LARGE, Codec.ZSTD),
)


def records_of(case: Case, chance: random.Random) -> Iterator[Record]:
    """Records of words that compress to a third; sizes differ as those of texts do; timestamps rise slowly."""
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=8)).encode() for _ in range(500)]
    headers = tuple(RecordHeader(b"header-%d" % index, b"its value") for index in range(case.headers))
    number = 0
    while True:
        value = b"".join(chance.choices(words, k=case.record_size_bytes // 8 - 1 + chance.randint(0, 1)))
        yield Record(b"%08d" % number, value, NOW_MS + number // 10, headers)
        number += 1


def log_of(case: Case, size_bytes: int) -> list[bytes]:
    """The batches of one partition."""
    batches: list[bytes] = []
    records, offset, built_bytes = records_of(case, random.Random(1)), 0, 0
    while built_bytes < size_bytes:
        of_batch = [next(records) for _ in range(max(1, case.batch_size_bytes // (case.record_size_bytes + 12)))]
        plain = build_batch(of_batch, base_offset=offset)
        packed = seal_batch(
            compress(case.codec, bytes(plain[HEADER_SIZE_BYTES:])),
            record_count=len(of_batch),
            base_offset=offset,
            leader_epoch=0,
            attributes=case.codec,
            timestamps_ms=(of_batch[0].timestamp_ms, of_batch[-1].timestamp_ms),
            producer=(-1, -1, -1),
        )
        batches.append(bytes(packed))
        built_bytes += len(plain)
        offset += len(of_batch)
    return batches


def by_spark_connectors(log: bytes, columns: Sequence[str]) -> int:
    """Decode as a task does, up to the Arrow batches that go to the JVM."""
    batches = visible(batches_of(log), [], is_committed_only=True)
    schema = schema_of(columns)
    found = decode(log, batches, topic="measured", partition=0, start=0, end=2**63 - 1, schema=schema)
    return sum(batch.num_rows for batch in found)


def by_aiokafka(log: bytes) -> int:
    """Decode as aiokafka's fetcher does, and read each field."""
    count = 0
    records = MemoryRecords(log)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers
            count += 1
    return count


def by_confluent(consumer: Consumer, count: int) -> int:
    left = count
    while left > 0:
        messages = consumer.consume(min(PORTION, left), WITHIN_S)
        assert messages, f"{count - left} records of {count} in {WITHIN_S:.0f} s"
        for message in messages:
            assert message.error() is None, message.error()
            _ = message.offset(), message.timestamp(), message.key(), message.value(), message.headers()
        left -= len(messages)
    return count


def measured(action: Callable[[], int], record_size_bytes: int) -> report.Figures:
    begun_s = time.process_time()
    count = action()
    seconds = time.process_time() - begun_s
    return {
        COMPARED: count / 1e6 / seconds,
        "ns/record": seconds / count * 1e9,
        "MB/s": count * record_size_bytes / 1e6 / seconds,
    }


def store(port: int, topic: str, batches: Sequence[bytes], *, partition: int = 0, times: int = 1) -> None:
    """Send each batch as it is, but for its offset, which the broker assigns."""
    requests = [produce_requests(topic, [partition], bytes(8) + batch[8:], 1) for batch in batches]
    frames = [each.frames[0] for each in requests]
    run_load(port, [Requests(frames, times * len(frames), requests[0].check)], in_flight=5)


def consume(contender: Contender, topic: str, count: int, record_size_bytes: int) -> report.Figures:
    """Consume from the first record on: a consumer needs up to a second until it fetches."""
    settings = {"bootstrap.servers": contender.broker.bootstrap, "group.id": topic}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        by_confluent(consumer, 1)
        return measured(partial(by_confluent, consumer, count - 1), record_size_bytes)


def run_case(case: Case, contender: Contender, options: Options) -> report.Result:
    batches = log_of(case, TOY_LOG_BYTES if options.toy else int(LOG_BYTES * options.scale))
    log = b"".join(batches)
    columns = [name for name in COLUMNS if name != "headers" or case.headers]
    topic = bench.new_topic(contender, 1)
    store(contender.broker.port, topic, batches)
    count, size_bytes = by_spark_connectors(log, columns), case.record_size_bytes
    assert by_aiokafka(log) == count, "aiokafka finds other records"
    actions: dict[str, Callable[[], report.Figures]] = {
        "spark_connectors": lambda: measured(lambda: by_spark_connectors(log, columns), size_bytes),
        "aiokafka": lambda: measured(lambda: by_aiokafka(log), size_bytes),
        "confluent-kafka": lambda: consume(contender, topic, count, size_bytes),
    }
    runs: dict[str, list[report.Figures]] = {name: [] for name in actions}
    for _ in range(options.alternations):
        for name, action in actions.items():
            runs[name].append(action())
    bench.delete_topic(contender, topic)
    result = report.Result(case.name, COMPARED, runs, case.bound)
    print(report.as_text(result), flush=True)
    return result


def compare(directory: Path, options: Options) -> report.Report:
    with Kafkawire(directory / "kafkawire", {}) as broker:
        contender = Contender("confluent-kafka", broker, {})
        return report.Report(machine.facts(), [run_case(case, contender, options) for case in CASES])


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("spark-decode", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
