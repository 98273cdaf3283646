"""Periodic expiry of the state of producers that were silent for long, in all partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from engine.partitions.partition import Partition


async def expire_producers(
    partitions: Callable[[], Iterable[Partition]],
    expiration_ms: Callable[[], int],
    now_ms: Callable[[], int],
    interval_s: float,
) -> None:
    """Expire producers every `interval_s`, until cancelled, as Kafka's ProducerStateManager.removeExpiredProducers."""
    while True:
        await trio.sleep(interval_s)
        before_ms = now_ms() - expiration_ms()
        for partition in list(partitions()):
            partition.log.producers.expire(before_ms)
            await trio.lowlevel.checkpoint()
