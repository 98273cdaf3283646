"""Which partition, and what this broker is to it. Others see it through `engine.api`."""

from typing import NamedTuple

from engine.log_config import LogConfig


class TopicPartition(NamedTuple):
    """Identity of a partition; a tuple because it is the key of the hottest dict."""

    topic_id: bytes
    topic: str
    partition: int


class Leadership(NamedTuple):
    """Of a partition, in an epoch acquired durably (RULES L3); `in_sync`: who else has to have a record. `has_others`:
    there are other replicas, in sync or not."""

    partition: TopicPartition
    config: LogConfig
    leader_epoch: int
    in_sync: tuple[int, ...] = ()
    has_others: bool = False


class Following(NamedTuple):
    """Of a partition that another broker leads in that epoch, or nobody does."""

    partition: TopicPartition
    config: LogConfig
    leader_epoch: int
    has_others: bool = True


Role = Leadership | Following
