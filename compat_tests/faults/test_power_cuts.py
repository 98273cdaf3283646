"""Power cuts under idempotent producers, by ext4's shutdown ioctl: nothing acknowledged is lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import Delivery, create_topic, flush, producer, watermarks, with_consumer
from compat_tests.faults import campaign
from compat_tests.faults.loop_image import LoopImage
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path

CUTS = int(os.environ.get("KAFKAWIRE_CHAOS_CUTS", "1"))
IMAGE_SIZE_MIB = 2048  # sparse


def on(disk: LoopImage) -> dict[str, str]:
    return {"log.dirs": str(disk.mount_point / "data")}


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    with LoopImage(tmp_path / "disk", IMAGE_SIZE_MIB) as disk:
        campaign.run(Kafkawire(tmp_path / "broker", on(disk)), tmp_path, disk.cut_power, CUTS)


def test_a_power_cut_loses_a_record_that_was_not_synced(tmp_path: Path) -> None:
    """A power cut loses data that were not synced. Otherwise the campaign above would prove nothing."""
    delivery = Delivery()
    with LoopImage(tmp_path / "disk", IMAGE_SIZE_MIB) as disk, Kafkawire(tmp_path / "broker", on(disk)) as broker:
        create_topic(broker, "unsynced", config={"flush.policy": "async", "flush.ms": "3600000"})
        client = producer(broker, acks="all")
        client.produce("unsynced", b"acknowledged", on_delivery=delivery)
        flush(client)
        assert len(delivery.messages) == 1
        disk.cut_power(broker)
        broker.start()
        where = TopicPartition("unsynced", 0)
        ends = with_consumer(broker, lambda consumer: watermarks(consumer, where))
        assert ends == (0, 0)
