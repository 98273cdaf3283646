"""A topic whose older segments are in a directory, or on a real S3 server, and no longer in the log dir."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.features.tiering.tiers import QUICK, tier
from compat_tests.harness.broker import BrokerFailedError
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "tiered"
RECORDS, RECORD_BYTES = 30_000, 200
CONFIGS = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
SEGMENT = re.compile(r"/0/0\d+-0\d+-")
WITHIN_S = 60.0


def values() -> list[bytes]:
    source = random.Random(17)
    return [source.randbytes(RECORD_BYTES) for _ in range(RECORDS)]


def produce(broker: Kafkawire, records: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    failed: list[object] = []
    for number, value in enumerate(records):
        while True:
            try:
                producer.produce(TOPIC, value, key=str(number), on_delivery=lambda error, _: failed.append(error))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0
    assert not any(failed)


def read(broker: Kafkawire) -> list[bytes]:
    """The values from offset 0 on, without a gap."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "of-tiers", "auto.offset.reset": "error"})
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + WITHIN_S
        while len(found) < RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                assert message.offset() == len(found)
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def segment_files(broker: Kafkawire) -> list[str]:
    return [name for name in os.listdir(broker.data_dir / f"{TOPIC}-0") if name.endswith(".log")]


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_consumers_read_both_tiers_after_a_kill_and_without_the_index(kind: str, tmp_path: Path) -> None:
    records = values()
    with ExitStack() as stack:
        remote = stack.enter_context(tier(kind, tmp_path))
        broker = Kafkawire(tmp_path, {**QUICK, **remote.given})
        stack.enter_context(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)]).values():
            created.result(WITHIN_S)
        produce(broker, records)
        deadline = time.monotonic() + WITHIN_S
        while len(segment_files(broker)) > 1:
            assert time.monotonic() < deadline, "files stay that the tier has"
            time.sleep(0.1)
        assert len([name for name in remote.names() if SEGMENT.search(name)]) >= 5
        assert read(broker) == records
        broker.kill()
        broker.start()
        assert read(broker) == records
        broker.stop()
        shutil.rmtree(broker.data_dir / "index")
        broker.start()
        assert read(broker) == records


def test_a_tier_that_is_away_keeps_producers_going(tmp_path: Path) -> None:
    """A broker without its store serves producers, and readers of local segments; the others can be read when it is
    back."""
    records = values()
    with ExitStack() as stack:
        remote = stack.enter_context(tier("directory", tmp_path))
        broker = Kafkawire(tmp_path, {**QUICK, **remote.given})
        stack.enter_context(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)]).values():
            created.result(WITHIN_S)
        objects = tmp_path / "tier"
        away = objects.rename(tmp_path / "away")
        produce(broker, records)
        time.sleep(1)
        assert len(segment_files(broker)) > 5
        assert read(broker) == records
        away.rename(objects)
        deadline = time.monotonic() + WITHIN_S
        while len(segment_files(broker)) > 1:
            assert time.monotonic() < deadline, "files stay that the tier has"
            time.sleep(0.1)
        assert read(broker) == records


def test_a_tier_that_cannot_be_reached_does_not_stop_the_start(tmp_path: Path) -> None:
    given = {"tier.store": "s3://bucket", "tier.s3.endpoint": "http://127.0.0.1:9"}
    secrets = {"tier.s3.access.key": "me", "tier.s3.secret.key": "a-word-to-keep"}
    with Kafkawire(tmp_path, {**QUICK, **given, **secrets}) as broker:
        log = broker.log_path.read_text()
    assert "cannot be reached" in log
    assert "a-word-to-keep" not in log


def test_a_tier_that_cannot_be_had_stops_the_start(tmp_path: Path) -> None:
    broker = Kafkawire(tmp_path, {**QUICK, "tier.store": "file:///dev/null/tier"})
    with pytest.raises(BrokerFailedError, match=r"tier\.store: /dev/null/tier: Not a directory"):
        broker.start()
