"""Imports from Apache Kafka and from kafkawire, into either, with kills meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from compat_tests.applications.jobs.importing import (
    IMPORT_WITHIN_S,
    PARTITIONS,
    Found,
    check_same,
    committed,
    edges,
    fill,
    fill_compacted,
    imported,
    words,
)
from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Admin,
    commit,
    create_topic,
    describe,
    flush,
    new_consumer,
    producer,
    wait_until,
)
from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_kafka_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

CLEANER = {"log.cleaner.backoff.ms": "200"}
KILLS = 3
LARGE = {"transactions": 60, "records": 400, "value_bytes": 2000}  # some 40 MB, incompressible


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    need_kafka_jars()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), CLEANER) as running:
        yield running


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Kafkawire(tmp_path_factory.mktemp("other"), CLEANER) as running:
        yield running


@pytest.fixture(params=["Apache Kafka", "kafkawire"])
def source(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue("kafka" if request.param == "Apache Kafka" else "other")
    return found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkawire]:
    """The target, which is killed now and then."""
    with Kafkawire(tmp_path_factory.mktemp("target"), CLEANER) as running:
        yield running


def test_each_offset_has_the_same_record(source: Broker, target: Kafkawire, topic: str) -> None:
    fill(source, topic)
    report = imported(source, target, topic, "--workers", "2")
    wanted = check_same(source, target, topic)
    assert report["outcome"] == "done"
    assert report["asked"]["offsets"] == "stay"
    assert report["counts"]["records"] == len(wanted)
    configs = describe(AdminClient({"bootstrap.servers": target.bootstrap}), ConfigResource(ResourceType.TOPIC, topic))
    assert configs["max.message.bytes"].value == "2000000"
    assert configs["retention.ms"].value == "-1"
    assert imported(source, target, topic)["counts"]["records"] == 0, "it is all there"


def test_a_second_import_copies_only_records_appended_since(source: Broker, target: Kafkawire, topic: str) -> None:
    fill(source, topic)
    imported(source, target, topic)
    client = producer(source, compression_type="snappy")
    for number in range(100):
        client.produce(topic, b"later %d" % number, partition=number % PARTITIONS)
    flush(client)
    assert imported(source, target, topic)["counts"]["records"] == 100
    check_same(source, target, topic)


def test_a_compacted_topic(source: Broker, target: Kafkawire, topic: str) -> None:
    fill_compacted(source, topic)
    imported(source, target, topic)
    wanted = check_same(source, target, topic)
    offsets = sorted(at for part, at in wanted if part == 0)
    assert offsets[-1] - offsets[0] > 2 * len(offsets), "most of them are gone"


def test_an_import_keeps_a_log_start_offset_within_a_batch(source: Broker, target: Kafkawire, topic: str) -> None:
    create_topic(source, topic, PARTITIONS)
    client = producer(source, compression_type="gzip", linger_ms=500)
    for number in range(40):
        client.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000)
    flush(client)
    Admin(source).delete_records(topic, 17)
    imported(source, target, topic)
    wanted = check_same(source, target, topic)
    assert min(wanted) == (0, 17)
    assert [one.start for one in edges(target, topic)] == [17, 0]


def test_an_imported_group_resumes_at_its_committed_offsets(source: Broker, target: Kafkawire, topic: str) -> None:
    fill(source, topic)
    at, end = 33, edges(source, topic)[1].end
    reader = new_consumer(source, group_id=topic, isolation_level="read_committed")
    commit(reader, TopicPartition(topic, 0, at), TopicPartition(topic, 1, end))
    reader.close()
    report = imported(source, target, topic, "--groups", topic, "nobody")
    assert (report["counts"]["groups"], report["counts"]["offsets_committed"]) == (1, 2)
    assert _next_of(target, topic) == _next_of(source, topic)
    assert _next_of(target, topic)[0] >= at
    client = producer(target)
    client.produce(topic, b"here", partition=1)
    flush(client)
    assert _next_of(target, topic, 1) == (end, b"here"), "the offset behind the last one is not out of range"


def _next_of(broker: Broker, topic: str, partition: int = 0) -> tuple[int, bytes | None]:
    """The next record that the group of the topic's name reads: offset and value."""
    reader = new_consumer(broker, group_id=topic, isolation_level="read_committed")
    try:
        (place,) = reader.committed([TopicPartition(topic, partition)], TIMEOUT_S)
        reader.assign([place])
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        offset: int | None = message.offset()
        assert offset is not None
        return offset, message.value()
    finally:
        reader.close()


def _killed(command: list[str], after_s: float) -> bool:
    """Run a command, and kill it after so many seconds. Returns whether it had not ended by itself."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            code = running.wait(after_s)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            return True
        assert code == 0
        return False


def test_each_offset_has_the_same_record_after_kills(source: Broker, target: Kafkawire, topic: str) -> None:
    fill(source, topic, **LARGE)
    rng, command = Random(7), words(source, target, topic, "--workers", "2")
    for _ in range(KILLS):
        _killed(command, rng.uniform(0.6, 2.0))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        for _ in range(2):
            time.sleep(rng.uniform(0.8, 1.5))
            target.kill()
            target.start()
        _, told = running.communicate(timeout=IMPORT_WITHIN_S)
        # Of a target that is down when it begins it says so, and is to be called again.
        assert running.returncode in (0, 1) or "no kafkawire answers" in told, told
    imported(source, target, topic)
    check_same(source, target, topic)


def mapped(path: Path) -> dict[tuple[int, int], int]:
    """The offset map, offset by offset."""
    _, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        (one["partition"], one["source"] + number): one["target"] + number
        for one in lines
        for number in range(one["count"])
    }


def check_mapped(source: Broker, to: Broker, topic: str, to_topic: str, path: Path, before: Found) -> None:
    """Check that each record of the source is in the target once, where the map says, and no others but those from
    before."""
    wanted, found, offsets = committed(source, topic), committed(to, to_topic), mapped(path)
    assert offsets.keys() == wanted.keys()
    assert {(part, offsets[part, at]): record for (part, at), record in wanted.items()} | before == found
    assert len(found) == len(wanted) + len(before)


def test_a_target_that_is_not_empty_gets_a_map(source: Broker, target: Kafkawire, topic: str, tmp_path: Path) -> None:
    fill(source, topic)
    to_topic, path = f"{topic}-copy", tmp_path / "map"
    create_topic(target, to_topic, PARTITIONS)
    client = producer(target)
    for number in range(5):
        client.produce(to_topic, b"before %d" % number, partition=0)
    flush(client)
    before = committed(target, to_topic)
    reader = new_consumer(source, group_id=to_topic)
    commit(reader, TopicPartition(topic, 0, 33))
    reader.close()
    refused = imported(source, target, topic, "--to-topic", to_topic, code=2)
    assert "offsets cannot stay" in refused["reason"]
    assert committed(target, to_topic) == before
    asked = "--to-topic", to_topic, "--offset-map", str(path), "--groups", to_topic
    assert imported(source, target, topic, *asked)["asked"]["offsets"] == "change"
    check_mapped(source, target, topic, to_topic, path, before)
    assert imported(source, target, topic, *asked)["counts"]["records"] == 0
    offsets = mapped(path)
    (place,) = new_consumer(target, group_id=to_topic).committed([TopicPartition(to_topic, 0)], TIMEOUT_S)
    assert place.offset == offsets[min(one for one in offsets if one >= (0, 33))]


def test_an_import_with_a_map_is_killed(source: Broker, target: Kafkawire, topic: str, tmp_path: Path) -> None:
    fill(source, topic, **LARGE)
    to_topic, path = f"{topic}-copy", tmp_path / "map"
    create_topic(target, to_topic, PARTITIONS)
    client = producer(target)
    client.produce(to_topic, b"before", partition=0)
    flush(client)
    before, rng = committed(target, to_topic), Random(3)
    asked = "--to-topic", to_topic, "--offset-map", str(path)
    for number in range(KILLS):
        _killed(words(source, target, topic, *asked), rng.uniform(0.5, 1.6))
        if number == KILLS // 2:
            target.kill()
            target.start()
    imported(source, target, topic, *asked)
    check_mapped(source, target, topic, to_topic, path, before)


def test_apache_kafka_gets_a_compacted_topic_with_a_map(
    kafka: Broker, other: Broker, topic: str, tmp_path: Path
) -> None:
    fill_compacted(other, topic)
    refused = imported(other, kafka, topic, code=2)
    assert "no kafkawire answers" in refused["reason"]
    path = tmp_path / "map"
    create_topic(kafka, topic, PARTITIONS)  # not compacted: each is to be found again
    imported(other, kafka, topic, "--offset-map", str(path))
    check_mapped(other, kafka, topic, topic, path, {})
    path.unlink()
    lacking = imported(other, kafka, topic, "--offset-map", str(path), code=2)
    assert "it is not the file of this import" in lacking["reason"]


def test_a_mismatched_import_is_refused(other: Broker, target: Kafkawire, topic: str, tmp_path: Path) -> None:
    assert "there is no topic" in imported(other, target, topic, code=2)["reason"]
    create_topic(other, topic, 3)
    create_topic(target, topic, 2)
    assert "has 3 partitions" in imported(other, target, topic, code=2)["reason"]
    Admin(target).grow(topic, 3)
    client = producer(other)
    client.produce(topic, b"first", partition=0)
    flush(client)
    imported(other, target, topic)
    assert "was not written by this import" in _after(other, target, topic, "again")
    path = str(tmp_path / "map")
    create_topic(target, f"{topic}-map", 3)
    asked = "--to-topic", f"{topic}-map", "--offset-map", path, "--to-http", "http://127.0.0.1:9"
    imported(other, target, topic, *asked)
    _recreate(other, topic, b"third")
    assert "deleted and created again" in imported(other, target, topic, *asked, code=2)["reason"]


def _after(source: Broker, target: Broker, topic: str, value: str) -> str:
    """The refusal of an import whose source topic was created again."""
    _recreate(source, topic, value.encode())
    reason: str = imported(source, target, topic, code=2)["reason"]
    return reason


def _recreate(broker: Broker, topic: str, value: bytes) -> None:
    admin = Admin(broker)
    admin.delete(topic)
    wait_until(lambda: topic not in admin.topics(), f"{topic} is still there")
    create_topic(broker, topic, 3)
    client = producer(broker)
    client.produce(topic, value, partition=0)
    flush(client)


def test_a_dry_run_changes_nothing(other: Broker, target: Kafkawire, topic: str) -> None:
    fill(other, topic)
    report = imported(other, target, topic, "--dry-run")
    assert report["asked"]["offsets"] == "stay"
    assert report["counts"]["offsets"] == sum(one.end - one.start for one in edges(other, topic))
    assert topic not in Admin(target).topics()
