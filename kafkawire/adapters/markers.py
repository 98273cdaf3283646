"""Transaction markers for the partitions that this broker leads: implements
`coordinator.transactions.api.MarkerWriter`.

Markers of `__consumer_offsets` go through the group coordinator of that partition: pending offsets become committed in
the order of the markers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.errors import MarkerNotWritten, StaleProducerEpoch, TransactionCoordinatorFenced, UnknownTopic
from coordinator.futures import settled
from coordinator.groups.service import OFFSETS_TOPIC, GroupCoordinators
from engine import errors as log_errors
from engine.api import Marker, Outcome, PartitionStore, PendingAppend, TopicIdPartition
from engine.errors import EngineError

if TYPE_CHECKING:
    from coordinator.api import ClusterService, Future
    from coordinator.errors import CoordinatorError
    from coordinator.state.log import StateMarker
    from coordinator.transactions.api import Partition


class LocalMarkers:
    """A `MarkerWriter` for the partitions of this broker."""

    def __init__(self, store: PartitionStore, cluster: ClusterService, groups: GroupCoordinators) -> None:
        self._store = store
        self._cluster = cluster
        self._groups = groups

    def write(self, marker: StateMarker, partition: Partition) -> Future[None]:
        """See `MarkerWriter`."""
        topic = self._cluster.image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.number < len(topic.partitions):
            return settled(UnknownTopic(partition.topic))  # type: ignore[return-value]  # it holds an error
        if partition.topic == OFFSETS_TOPIC:
            return self._groups.end_transaction(partition.number, marker)
        outcome = Outcome.COMMIT if marker.is_commit else Outcome.ABORT
        try:
            log = self._store.get(TopicIdPartition(topic.topic_id, topic.name, partition.number))
            append = log.end_transaction(
                Marker(marker.producer_id, marker.epoch, marker.coordinator_epoch, outcome, marker.protocol)
            )
        except EngineError as error:
            return settled(_coordinator_error(error))  # type: ignore[return-value]  # it holds an error
        return _Write(append)


class _Write:
    """A `coordinator.api.Future`."""

    __slots__ = ("_append",)

    def __init__(self, append: PendingAppend) -> None:
        self._append = append

    @property
    def is_settled(self) -> bool:
        return self._append.is_settled

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._append.call_when_settled(callback)

    def result(self) -> None:
        outcome = self._append.outcome
        if isinstance(outcome, EngineError):
            raise _coordinator_error(outcome)


def _coordinator_error(error: EngineError) -> CoordinatorError:
    """The coordinator's error for an error of the engine, which becomes its cause."""
    converted: CoordinatorError
    if isinstance(error, log_errors.InvalidProducerEpoch):
        converted = StaleProducerEpoch(str(error))
    elif isinstance(error, log_errors.TransactionCoordinatorFenced):
        converted = TransactionCoordinatorFenced(str(error))
    else:
        converted = MarkerNotWritten(str(error))
    converted.__cause__ = error.with_traceback(None)
    return converted
