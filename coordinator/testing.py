"""What tests of the control plane, and of a whole broker in memory, need: fakes, and a runner without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from coordinator.errors import InvalidConfig
from coordinator.metadata.fake import FakeEnsemble, FakeStore, Faults, Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coordinator.api import ClusterImage, HostedPartition

__all__ = ["FakeEnsemble", "FakeHost", "FakeStore", "FakeValidator", "Faults", "Loss", "run_inline"]


async def run_inline(function: Callable[[], None]) -> None:
    """Runs a blocking function where it stands, so that a test's schedule is the same every time."""
    await trio.lowlevel.checkpoint()
    function()


class FakeHost:
    """A `PartitionHost` that only keeps what it hosts: the epochs by (topic, partition), and a log of its calls."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[str, int], int] = {}
        self.topic_ids: set[bytes] = set()
        self.calls: list[str] = []

    async def remove_strays(self, image: ClusterImage) -> None:
        """Drops what the image does not know."""
        await trio.lowlevel.checkpoint()
        self.calls.append("remove strays")
        self.topic_ids &= set(image.topics_by_id)

    async def apply(self, opened: Sequence[HostedPartition], deleted: Sequence[HostedPartition]) -> None:
        """Opens and drops; an epoch must never go back."""
        await trio.lowlevel.checkpoint()
        self.calls.append(f"apply {len(opened)} opened, {len(deleted)} deleted")
        for partition in deleted:
            self.epochs.pop((partition.topic, partition.partition), None)
            self.topic_ids.discard(partition.topic_id)
        for partition in opened:
            key = (partition.topic, partition.partition)
            assert self.epochs.get(key, -1) <= partition.state.leader_epoch
            self.epochs[key] = partition.state.leader_epoch
            self.topic_ids.add(partition.topic_id)


class FakeValidator:
    """A `TopicConfigValidator` that refuses one key."""

    def validate(self, configs: Mapping[str, str]) -> None:
        """Raises InvalidConfig for the key `unknown.key`."""
        if "unknown.key" in configs:
            raise InvalidConfig("Unknown topic config name: unknown.key")
