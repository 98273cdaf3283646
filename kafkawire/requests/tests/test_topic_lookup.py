"""Lookup of partitions by name."""

from __future__ import annotations

from kafkawire.requests.topic_lookup import high_watermark
from kafkawire.tests.harness import open_handlers


async def test_high_watermark_is_found_for_led_partitions_and_none_for_unknown_partitions() -> None:
    async with open_handlers() as real:
        await real.create("orders", 2)
        await real.append("orders", b"v", partition=1)
        image = real.cluster.image
        assert [high_watermark(real.store, image, "orders", partition) for partition in (0, 1, 2)] == [0, 1, None]
        assert high_watermark(real.store, image, "others", 0) is None
