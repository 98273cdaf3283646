"""Check that every partition has a leader and all its replicas are in sync, by the answer of each broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from compat_tests.faults.metadata_campaign import ANSWER_WITHIN_S, connected, view_of_broker
from kafkawire.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Collection

    from compat_tests.faults.metadata_campaign import MetadataView
    from compat_tests.harness.kafkawire_broker import Kafkawire

IN_SYNC_WITHIN_S: Final = 90.0
SHOWN: Final = 3


def metadata_of(broker: Kafkawire) -> MetadataView:
    """The metadata of all topics, by the answer of a broker. Raises ClientError, TooSlowError."""

    async def ask() -> MetadataView:
        with trio.fail_after(ANSWER_WITHIN_S):
            async with connected(broker) as connection:
                return await view_of_broker(connection)

    return trio.run(ask)


def lacks_of(broker: Kafkawire) -> list[str]:
    """The partitions without a leader or with replicas out of sync, by the answer of this broker."""
    try:
        view = metadata_of(broker)
    except (ClientError, trio.TooSlowError) as error:
        return [f"broker {broker.directory.name} does not answer: {error!r}"]
    return [
        f"{name}-{number}, as broker {broker.directory.name} tells: led by {leader} in epoch {epoch}, in sync {isr}"
        for name, (_, _, partitions) in view.items()
        for number, (leader, epoch, replicas, isr) in enumerate(partitions)
        if leader < 0 or sorted(isr) != sorted(replicas)
    ]


def wait_until_in_sync(brokers: Collection[Kafkawire]) -> None:
    """Wait for all replicas. Raises AssertionError with some of those that are not in sync after `IN_SYNC_WITHIN_S`."""
    deadline_s = time.monotonic() + IN_SYNC_WITHIN_S
    while lacks := [lack for one in brokers for lack in lacks_of(one)]:
        assert time.monotonic() < deadline_s, f"not in sync after {IN_SYNC_WITHIN_S:.0f} s: {lacks[:SHOWN]}"
        time.sleep(0.1)
