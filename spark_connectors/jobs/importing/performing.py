"""Execution of the steps of `mapping`: common steps by `sink.requests`, and the import's own ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_connectors.jobs.importing.mapping import Note, ReadPositions, Step, WritePosition
from spark_connectors.jobs.importing.offset_map import MapFile
from spark_connectors.progress.committed import committed_of
from spark_connectors.sink.requests import Requests
from spark_connectors.wire import TopicPartition


@dataclass(frozen=True)
class ImportSteps:
    """Steps of one import into a topic with `partitions` partitions. `requests.name` is also the name of the group."""

    requests: Requests
    file: MapFile
    topic: str
    partitions: int

    def perform(self, step: Step) -> Any:
        """Execute a step. Raises Fenced, WireError."""
        match step:
            case ReadPositions():
                return self._positions()
            case WritePosition():
                place = TopicPartition(self.topic, step.partition)
                return self.requests.commit_offset(step.producer, place, step.offset, step.metadata)
            case Note(runs):
                return self.file.add(runs)
            case _:
                return self.requests.perform(step)

    def _positions(self) -> dict[int, tuple[int, str]]:
        found = committed_of(self.requests.cluster, self.requests.name, self.topic, range(self.partitions))
        return {number: (one.offset, one.metadata) for number, one in found.items()}
