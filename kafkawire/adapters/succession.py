"""Whom a new leader need not wait for: one that has left in order answers nothing from what it alone knows (RULES K24).

Pure. Before a broker says that it leaves it outwaits whoever led its partitions before, and gives up its leases; and it
says so on top of an image that it goes by. So whoever leads next waits for nobody, if the epoch before is one in which
this broker saw its leader serve: it began before that leader left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.api import BrokerState, ClusterImage, PartitionState

if TYPE_CHECKING:
    from engine.api import TopicPartition


class _Leader(NamedTuple):
    broker_id: int
    incarnation: bytes
    epoch: int


class Succession:
    """Of the partitions that one broker hosts."""

    def __init__(self) -> None:
        self._served: dict[TopicPartition, _Leader] = {}

    def note(self, partition: TopicPartition, state: PartitionState, image: ClusterImage) -> None:
        """It is followed in that state, or led; the image has it."""
        leader = _Leader(state.leader, state.incarnation, state.leader_epoch)
        if _state_of(leader, image) is BrokerState.SERVING:
            self._served[partition] = leader

    def has_left(self, partition: TopicPartition, state: PartitionState, image: ClusterImage) -> bool:
        """Whether whoever led it in the epoch before has said that it leaves, and is in that life still."""
        before = self._served.get(partition)
        if before is None or before.epoch != state.leader_epoch - 1:
            return False
        return _state_of(before, image) is BrokerState.LEAVING

    def forget(self, partition: TopicPartition) -> None:
        """It is hosted no more."""
        self._served.pop(partition, None)


def _state_of(leader: _Leader, image: ClusterImage) -> BrokerState | None:
    """None: it is not there in that life."""
    known = image.members.get(leader.broker_id)
    return known.state if known is not None and known.incarnation == leader.incarnation else None
