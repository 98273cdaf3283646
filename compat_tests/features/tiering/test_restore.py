"""A machine is lost, or its metadata are: the segments in the remote tier come back, and stock clients go on."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from compat_tests.clients.confluent import clients
from compat_tests.features.tiering.test_tiers import CONFIGS, RECORDS, TOPIC, WITHIN_S, produce, read, values
from compat_tests.features.tiering.tiers import QUICK, Tier, tier
from compat_tests.harness.kafkawire_broker import KAFKAWIRE, Kafkawire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GROUP = "pipeline"
COMMITTED = 12_345


def commit(broker: Kafkawire, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    clients.commit(consumer, TopicPartition(TOPIC, 0, offset))
    consumer.close()


def committed(admin: AdminClient) -> int:
    """The committed offset, as soon as the coordinator is loaded."""

    def ask() -> int:
        [asked] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
        return int(asked.result(WITHIN_S).topic_partitions[0].offset)

    return clients.insist(ask, *clients.COORDINATED_ELSEWHERE)


def offset(admin: AdminClient, spec: Any) -> int:
    [asked] = admin.list_offsets({TopicPartition(TOPIC, 0): spec}).values()
    return int(asked.result(WITHIN_S).offset)


def retention_of(admin: AdminClient) -> str:
    [asked] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values()
    return str(asked.result(WITHIN_S)["retention.ms"].value)


def restore(broker: Kafkawire, given: Mapping[str, str], *options: str) -> dict[str, Any]:
    properties = {**QUICK, **given, "log.dirs": str(broker.data_dir)}
    settings = [part for key, value in properties.items() for part in ("--set", f"{key}={value}")]
    command = [str(KAFKAWIRE), "tier", "restore", *settings, "-o", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def within(what: str, is_so: Any) -> None:
    deadline = time.monotonic() + 2 * WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


@pytest.mark.parametrize(("kind", "lost"), [("directory", "metadata"), ("s3", "machine")])
def test_a_restore_brings_back_records_configs_and_committed_offsets(kind: str, lost: str, tmp_path: Path) -> None:
    records = values()
    with ExitStack() as stack:
        remote = stack.enter_context(tier(kind, tmp_path))
        broker = Kafkawire(tmp_path, {**QUICK, **remote.given})
        stack.enter_context(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(TOPIC, 1, 1, config={**CONFIGS, "retention.ms": "987654321"})
        admin.create_topics([topic])[TOPIC].result(WITHIN_S)
        produce(broker, records)
        commit(broker, COMMITTED)
        within("committed offsets are not copied", lambda: has_offset(remote, COMMITTED))
        within("segments are not copied", lambda: is_local(broker))
        broker.kill()
        end = RECORDS
        if lost == "machine":
            shutil.rmtree(broker.data_dir)
            [row] = restore(broker, remote.given, "--dry-run")["partitions"]
            assert not broker.data_dir.exists()
            end = row["end_offset"]
            assert COMMITTED < end < RECORDS
        else:
            shutil.rmtree(broker.data_dir / "metadata")
        [row] = restore(broker, remote.given)["partitions"]
        assert row["log_start_offset"] == 0
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert offset(admin, OffsetSpec.latest()) == end
        assert retention_of(admin) == "987654321"
        assert committed(admin) == COMMITTED
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(end, RECORDS):
            producer.produce(TOPIC, records[number], key=str(number))
        assert producer.flush(WITHIN_S) == 0
        assert read(broker) == records


def has_offset(remote: Tier, offset: int) -> bool:
    """Whether some copy of committed offsets names it. Copies come and go meanwhile."""
    return any(str(offset).encode() in remote.content(name) for name in remote.names() if "/offsets/" in name)


def is_local(broker: Kafkawire) -> bool:
    """Whether the log dir has only the active segment: the rest is in the tier."""
    return len(list((broker.data_dir / f"{TOPIC}-0").glob("*.log"))) == 1
