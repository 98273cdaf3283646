"""Whether a leader may answer from what it alone knows: its lease, with a clock and the metadata session around it."""

from engine.api import TopicPartition
from engine.errors import NotLeaderOrFollower
from engine.replica_log import Standing
from engine.replication.confirmations import Lease
from engine.replication.replicas import Replicas
from engine.roles import Confirming


class LeaderLease:
    """Of one leadership of a partition that has other replicas (RULES K24)."""

    __slots__ = ("_confirming", "_lease", "_partition", "_replicas")

    def __init__(
        self, partition: TopicPartition, replicas: Replicas, confirming: Confirming, *, waits: bool = True
    ) -> None:
        """`waits`: see `engine.roles.Others`."""
        self._partition = partition
        self._replicas = replicas
        self._confirming = confirming
        self._lease = Lease(confirming.boot_ms(), waits=waits and replicas.epoch > 0)

    @property
    def is_confirmed(self) -> bool:
        """To be asked after what the answer tells was looked up: the process may stand still in between."""
        boot_ms, has_session, _, has_left = self._confirming
        successors = self._replicas.successors
        return not has_left() and self._lease.is_confirmed(successors, boot_ms(), has_session=has_session())

    @property
    def wait_ms(self) -> int:
        """For how long the leader before may still answer."""
        return self._lease.wait_ms(self._confirming.boot_ms())

    def fetched(self, replica: int, as_of_ms: int, standing: Standing | None = None) -> None:
        """See `Lease.fetched`."""
        self._lease.fetched(replica, as_of_ms, standing)

    def left(self, replica: int) -> None:
        """See `Lease.left`."""
        self._lease.left(replica)

    def check_takes_alone(self) -> None:
        """Of a record that is acknowledged before others have it. Raises NotLeaderOrFollower."""
        boot_ms, has_session, accepts_alone, _ = self._confirming
        if accepts_alone or self._lease.may_take(self._replicas.successors, boot_ms(), has_session=has_session()):
            return
        name = f"{self._partition.topic}-{self._partition.partition}"
        raise NotLeaderOrFollower(
            f"whoever may succeed the leader of {name} has not been heard of (metadata.loss.acks1)"
        )
