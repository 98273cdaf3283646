"""The end of a suspension: a partition that served nothing for a while takes its newest role (decision 44)."""

from contextlib import suppress

from engine.errors import EngineError
from engine.partitions.partition import Partition
from engine.roles import Leadership, Role


def take_role(partition: Partition, role: Role) -> None:
    """Give the partition a role, between commit batches. If the role is refused, a suspended partition stays suspended.

    A suspended follower asks its leader anew, also in the same epoch: the answers to its earlier Fetches are lost. A
    leader that goes on in its epoch first learns the newest committed ISR. Raises as `Partition.check_open` and
    `Partition.assume` do.
    """
    was_suspended = partition.resume_service()
    try:
        partition.check_open()
        partition.assume(role)
    except EngineError:
        if was_suspended:
            partition.suspend()
        raise
    if was_suspended and isinstance(role, Leadership) and role.others is not None:
        with suppress(EngineError):  # a damaged log is led, and takes no appends
            partition.followers.learn(role.others.committed)
