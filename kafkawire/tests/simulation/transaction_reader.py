"""Readers of committed data: records as the Java client picks them from a fetch, and stable offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from engine.batches.batch import (
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
    walk_records,
)
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.transaction_client import RetryingClient
from kafkawire.tests.simulation.transaction_history import NO_OFFSET, ReadRecord, StableOffset, StableRead
from kafkawire.tests.simulation.transaction_plan import TransactionsPlan

READ_COMMITTED = 1
ABORT_MARKER = b"\x00\x00\x00\x00"  # version and type
SIZE_MAX_BYTES = 1 << 20
PAUSE_S = 0.15
OFFSET_FETCH_VERSION = 7  # the first with require_stable


def committed_records(
    data: memoryview, aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[BatchHeader, list[ReadRecord]]]:
    """Each complete batch with the records that a consumer takes from it. `aborted`: producer ids and first offsets.

    It follows CompletedFetch.nextFetchedRecord of Kafka's consumer.
    """
    coming = sorted(aborted, key=lambda one: one[1])
    open_producers: set[int] = set()
    position = 0
    while position + HEADER_SIZE_BYTES <= len(data):
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            return
        while coming and coming[0][1] < header.next_offset:
            open_producers.add(coming.pop(0)[0])
        body = data[position + HEADER_SIZE_BYTES : position + header.size_bytes]
        position += header.size_bytes
        if header.attributes & CONTROL_BIT:
            if any(record.key == ABORT_MARKER for record in walk_records(header, body)):
                open_producers.discard(header.producer_id)
            yield header, []
        elif header.attributes & TRANSACTIONAL_BIT and header.producer_id in open_producers:
            yield header, []
        else:
            yield header, list(_seen(header, body))


def _seen(header: BatchHeader, body: memoryview) -> Iterator[ReadRecord]:
    for record in walk_records(header, body):
        assert record.key is not None
        assert record.value is not None
        number, count, _ = record.value.split(b":", 2)
        yield ReadRecord(header.base_offset + record.offset_delta, (int(number), int(count)), int(record.key))


@dataclass
class StableReader(RetryingClient):
    """A reader that follows all partitions, starts over now and then, and reads the offsets of all groups in
    between."""

    plan: TransactionsPlan
    _positions: dict[Target, int] = field(default_factory=dict)

    async def run(self) -> None:
        while not self.shared.is_over:
            await trio.sleep(self.rng.expovariate(1 / PAUSE_S))
            target = self.rng.choice(self.plan.targets)
            if self.rng.random() < 0.1:
                self._positions[target] = 0
            await self.read(target)
            if self.rng.random() < 0.3:
                await self.read_offset(self.rng.choice(self.plan.transactors).group)

    async def read(self, target: Target) -> StableRead | None:
        """Read the next committed records; None if that is not possible now."""
        offset = self._positions.get(target, 0)
        asked = FetchPartition(
            partition=target.partition,
            fetch_offset=offset,
            partition_max_bytes=self.rng.choice((1, 1000, SIZE_MAX_BYTES)),
        )
        request = FetchRequest(
            isolation_level=READ_COMMITTED,
            max_bytes=SIZE_MAX_BYTES,
            topics=[FetchTopic(topic=target.topic, partitions=[asked])],
        )
        invoked = self.shared.history.tick()
        answer = await self.ask(request, self.rng.choice((4, 6, 11)), retried=())
        row = answer.responses[0].partitions[0]
        if row.error_code:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.report_trouble(f"{offset} of {target} is not there any more")
            return None
        found = self._found(target, offset, invoked, row)
        self._positions[target] = found.next_offset
        self.history.reads.append(found)
        self.shared.history.note(self.name, target, offset, found.stable_end, found.next_offset)
        return found

    def _found(self, target: Target, offset: int, invoked: int, row: Any) -> StableRead:
        aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
        records: list[ReadRecord] = []
        next_offset = offset
        for header, some in committed_records(memoryview(row.records or b""), aborted):
            records += [one for one in some if one.offset >= offset]
            next_offset = header.next_offset
        return StableRead(
            target,
            offset,
            invoked,
            self.shared.history.tick(),
            row.last_stable_offset,
            row.high_watermark,
            tuple(records),
            next_offset,
        )

    def offset_request(self, group: str) -> OffsetFetchRequest:
        """The request for the offset of a group that no open transaction can change."""
        topic, partition = self.plan.offset_target
        return OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
            require_stable=True,
        )

    async def read_offset(self, group: str) -> None:
        invoked = self.shared.history.tick()
        answer = await self.ask(self.offset_request(group), OFFSET_FETCH_VERSION, retried=())
        row = answer.topics[0].partitions[0] if answer.topics else None
        if answer.error_code or row is None or row.error_code:
            return
        number = row.committed_offset if row.committed_offset >= 0 else NO_OFFSET
        completed = self.shared.history.tick()
        self.history.offsets.append(StableOffset(group, invoked, completed, number))
        self.shared.history.note(self.name, group, number)

    async def read_to_the_end(self, target: Target) -> list[ReadRecord]:
        """All records, after the last transaction there has ended. Committed records stay, so none is read twice."""
        self._positions[target] = 0
        records: list[ReadRecord] = []
        while True:
            found = await self.read(target)
            if found is not None:
                records += found.records
                if found.stable_end == found.high_watermark and self._is_all(found):
                    return records
            if found is None or found.next_offset == found.offset:
                await trio.sleep(0.1)  # a transaction is open, or records are under way from the tier

    def _is_all(self, found: StableRead) -> bool:
        is_stuck = found.next_offset == found.offset and not self.plan.is_tiered(found.target)
        return is_stuck or found.next_offset == found.high_watermark
