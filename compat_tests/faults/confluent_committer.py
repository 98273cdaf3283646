"""A member of a group, by librdkafka, that reads and commits until stdin ends, and asks for the committed offsets.

Arguments: broker, topic, group. It prints a JSON document for each answer (`committed_offsets.Sight`): the offset that
was committed or found, and the times of the question and of the answer, by the clock of the brokers' logs.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

TIMEOUT_S = 10.0
WAIT_S = 0.1
RECORDS_MAX = 50  # between two commits
NOTHING = -1


class Committer:
    """A single member of the group."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._read: dict[int, int] = {}  # next offset, by partition
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._begin, on_revoke=self._forget, on_lost=self._forget)

    def _begin(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Assign partitions at their committed offsets, and forget records that were read before."""
        self._read.clear()
        found = self._check_committed(places).items()
        consumer.assign([TopicPartition(self._topic, number, _first(offset)) for number, offset in found])

    def _forget(self, _consumer: Consumer, _places: list[TopicPartition]) -> None:
        self._read.clear()

    def work(self) -> None:
        """Read, commit, and ask for the committed offsets. Records are polled one by one, because a record of an old
        assignment must not be taken for a record of the next one."""
        for _ in range(RECORDS_MAX):
            message = self._consumer.poll(WAIT_S)
            if message is None:
                break
            if message.error() is None:
                self._note(message)
        if self._read:
            places = [TopicPartition(self._topic, number, offset) for number, offset in self._read.items()]
            self._commit(places)
            self._check_committed(places, is_patient=False)

    def _note(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._read[partition] = offset + 1

    def _commit(self, places: list[TopicPartition]) -> None:
        asked_at_s = time.time()
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False) or []
        except KafkaException as error:
            _print_event({"refused": str(error.args[0].name())})
        else:
            _print_sights("commit", [one for one in done if one.error is None], asked_at_s)

    def _check_committed(self, places: list[TopicPartition], *, is_patient: bool = True) -> dict[int, int]:
        """Ask for the committed offsets until all are known, and return them by partition. Without `is_patient`, ask
        once: some may be missing."""
        while True:
            asked_at_s = time.time()
            try:
                found = self._consumer.committed(places, TIMEOUT_S)
            except KafkaException:
                found = []
            good = [one for one in found if one.error is None]
            _print_sights("look", good, asked_at_s)
            if len(good) == len(places) or not is_patient:
                return {one.partition: one.offset for one in good}

    def close(self) -> None:
        self._consumer.close()


def _first(offset: int) -> int:
    return offset if offset >= 0 else OFFSET_BEGINNING


def _print_sights(kind: str, places: list[TopicPartition], asked_at_s: float) -> None:
    answered_at_s = time.time()
    for one in places:
        _print_event({"sight": [kind, one.partition, max(one.offset, NOTHING), asked_at_s, answered_at_s]})


def _print_event(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    listening = threading.Thread(target=sys.stdin.read, daemon=True)
    listening.start()
    committer = Committer(*sys.argv[1:])
    while listening.is_alive():
        committer.work()
    committer.close()


if __name__ == "__main__":
    main()
