"""The end of a suspension: a partition that served nothing for a while takes its newest role (decision 44)."""

from contextlib import suppress

from engine.errors import EngineError
from engine.partitions.partition import Partition
from engine.roles import Leadership, Role


def take_role(partition: Partition, role: Role) -> None:
    """Between rounds; a role that is refused leaves the partition suspended if it was. Raises why it is closed, and as
    `Partition.assume` does.

    A follower asks its leader anew, also in the same epoch: nobody told its questions what became of them. A leader
    that goes on in its epoch learns first what the metadata says by now.
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
            partition.learn(role.others.committed)
