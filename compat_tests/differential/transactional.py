"""A transactional producer by hand, for scenarios: its requests are noted, but not those that prepare them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.side import READY_TIMEOUT_S
from compat_tests.harness.batches import Batch, Record

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

TRANSACTIONAL = 0x10
ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS, INITIALISE = 3, 3, 3, 9, 3, 4
NEW_PRODUCE, NEW_COMMIT_OFFSETS, NEW_END = 12, 5, 5  # of the second protocol (KIP-890)
OWN = "its own"
OVER = ("Empty", "CompleteCommit", "CompleteAbort")
Partitions = dict[str, list[int]]


def rows(partitions: Partitions) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": numbers} for name, numbers in partitions.items()]


def unfinished(side: Side, name: str) -> bool:
    """Whether the transaction is ending: some partitions may not have their marker yet."""
    [found] = side.quiet("describe_transactions", 0, {"transactional_ids": [name]})["transaction_states"]
    return found["error_code"] == 0 and found["transaction_state"] not in OVER


class Producer:
    """A producer with a transactional id. `identity`: producer id and epoch of the last InitProducerId."""

    def __init__(self, side: Side, name: str) -> None:
        self._side = side
        self.name = name
        self.identity = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    def initialise(self, version: int = INITIALISE, label: str = "init", **more: Any) -> None:
        """Send InitProducerId until the previous transaction is over, as clients do."""
        request: dict[str, Any] = {"transactional_id": self.name, "transaction_timeout": 60_000}
        if version >= 3:
            request |= {"producer_id": -1, "producer_epoch": -1}
        reply = self._side.ask_until_over("init_producer_id", version, request | more, label=label)
        if reply.get("error_code") == 0:
            self.identity = (reply["producer_id"], reply["producer_epoch"])
            self._sequences.clear()

    def _named(self, more: dict[str, Any]) -> dict[str, Any]:
        producer_id, epoch = self.identity
        return {
            "transactional_id": self.name,
            "producer_id": producer_id,
            "producer_epoch": epoch + more.pop("ahead", 0),
        } | more

    def add(self, partitions: Partitions, version: int = ADD, label: str = "add", **more: Any) -> None:
        """Add partitions to the transaction. `ahead`: a difference to the producer's epoch."""
        named = self._named(more)
        request = {
            "v3_and_below_transactional_id": named["transactional_id"],
            "v3_and_below_producer_id": named["producer_id"],
            "v3_and_below_producer_epoch": named["producer_epoch"],
            "v3_and_below_topics": rows(partitions),
        }
        self._side.ask_until_over("add_partitions_to_txn", version, request, label=label)

    def add_offsets(self, group: str, version: int = ADD_OFFSETS, label: str = "add offsets", **more: Any) -> None:
        request = {"group_id": group, **self._named(more)}
        self._side.ask_until_over("add_offsets_to_txn", version, request, label=label)

    def commit_offsets(
        self,
        group: str,
        topics: list[dict[str, Any]],
        version: int = COMMIT_OFFSETS,
        label: str = "offsets",
        **more: Any,
    ) -> None:
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        request = {"group_id": group, "topics": topics, **member, **self._named(more)}
        self._side.ask_until_over("txn_offset_commit", version, request, label=label)

    def end(self, *, is_commit: bool = True, version: int = END, label: str = "end", **more: Any) -> None:
        """End the transaction, and return when all partitions have their marker."""
        reply = self.end_again(is_commit=is_commit, version=version, label=label, **more)
        if version >= NEW_END and reply.get("error_code") == 0:
            self.identity = (reply["producer_id"], reply["producer_epoch"])
            self._sequences.clear()

    def end_again(
        self, *, is_commit: bool = True, version: int = END, label: str = "end", **more: Any
    ) -> dict[str, Any]:
        """Send an EndTxn that changes nothing for the producer, such as a repetition."""
        request = {"committed": is_commit, **self._named(more)}
        reply = self._side.ask_until_over("end_txn", version, request, label=label)
        self.wait()
        return reply

    def forget(self, topic: str, partition: int = 0) -> None:
        """Take the last batch out of the sequence, because the broker refused it."""
        self._sequences[topic, partition] -= 1

    def wait(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while unfinished(self._side, self.name):
            if self._is_ongoing():
                return
            assert time.monotonic() < deadline, f"{self._side.broker.name}: {self.name} does not end"
            time.sleep(0.01)

    def _is_ongoing(self) -> bool:
        request = {"transactional_ids": [self.name]}
        [found] = self._side.quiet("describe_transactions", 0, request)["transaction_states"]
        return bool(found["transaction_state"] == "Ongoing")

    def batch(self, topic: str, partition: int = 0, values: tuple[bytes, ...] = (b"v",), **more: Any) -> bytes:
        """The next batch of a partition."""
        producer_id, epoch = self.identity
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        settings: dict[str, Any] = {
            "records": tuple(Record(value=value) for value in values),
            "attributes": TRANSACTIONAL,
            "producer_id": producer_id,
            "producer_epoch": epoch + more.pop("ahead", 0),
            "base_sequence": sequence,
        }
        return Batch(**(settings | more)).encode()

    def send(
        self,
        topic: str,
        records: bytes | None = None,
        *,
        partition: int = 0,
        version: int = PRODUCE,
        label: str = "send",
        name: str | None = OWN,
    ) -> None:
        """Produce a batch. `name`: another transactional id, or none."""
        data = {"index": partition, "records": self.batch(topic, partition) if records is None else records}
        topic_row = {"name": topic, "topic_id": self._side.topic_id(topic), "partition_data": [data]}
        request = {
            "transactional_id": self.name if name == OWN else name,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [topic_row],
        }
        self._side.ask_until_over("produce", version, request, label=label)

    def transact(self, topic: str, value: bytes = b"v", *, is_commit: bool = True, label: str = "transaction") -> None:
        """Write a record to partition 0 in a transaction, and end it."""
        self.add({topic: [0]}, label=f"{label}: add")
        self.send(topic, self.batch(topic, values=(value,)), label=f"{label}: send")
        self.end(is_commit=is_commit, label=f"{label}: end")
