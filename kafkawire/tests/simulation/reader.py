"""Consumers: followers read the tail with long polls, with sessions or without; wanderers read and search anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from engine.batches.batch import BatchHeader, has_right_crc, parse_header, walk_records
from engine.batches.codecs import decompress
from engine.errors import CorruptMessage
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.history import Lookup, Place, Read, StoredBatch, StoredRecord, Value
from kafkawire.tests.simulation.network import LOST, Connection
from kafkawire.tests.simulation.shared import Shared

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_IDS = 13
VERSIONS = (4, 6, 7, 11, 12, 13, 16, 17)
HEADER_SIZE_BYTES = 61
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
NO_SESSION = -1
EMPTY_ANSWERS_MAX = 50
SIZES_BYTES = (1, 500, 5000, 1 << 20)
SHARE_WITH_ONE_SIZE = 0.5
REWIND_SHARE = 0.05  # of the answers

_decoded: dict[tuple[int, int, int], tuple[tuple[int, Value, int], ...]] = {}


def parse_batches(data: memoryview) -> Iterator[StoredBatch]:
    """The complete batches of a fetch, as a client decodes them. Raises CorruptMessage with a description."""
    position = 0
    while position + HEADER_SIZE_BYTES <= len(data):
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            return
        if header.magic != 2 or header.size_bytes < HEADER_SIZE_BYTES:
            raise CorruptMessage(f"no batch at position {position}")
        batch = data[position : position + header.size_bytes]
        if not has_right_crc(batch, header):
            raise CorruptMessage(f"wrong CRC of the batch with offset {header.base_offset}")
        base = header.base_offset
        records = tuple(StoredRecord(base + delta, value, time) for delta, value, time in _records(batch, header))
        yield StoredBatch(base, header.next_offset - 1, header.leader_epoch, records)
        position += header.size_bytes


def _records(batch: memoryview, header: BatchHeader) -> tuple[tuple[int, Value, int], ...]:
    """Offset delta, value and timestamp. Batches are read many times: decoding is remembered by CRC and size."""
    key = (header.crc, len(batch), header.max_timestamp_ms)
    if key not in _decoded:
        body = decompress(header.codec_id, bytes(batch[HEADER_SIZE_BYTES:]))
        _decoded[key] = tuple(
            (record.offset_delta, _value(record.value), record.timestamp_ms) for record in walk_records(header, body)
        )
    return _decoded[key]


def _value(stored: bytes | None) -> Value:
    assert stored is not None
    writer, number, _ = stored.split(b":", 2)
    return int(writer), int(number)


@dataclass
class Consumer:
    """The common part of both kinds: sending requests, and noting the replies."""

    name: str
    shared: Shared
    places: list[tuple[str, int]]
    rng: Random = field(init=False)
    version: int = field(init=False)
    sizes_bytes: tuple[int, ...] = field(init=False)  # of a partition; most clients ask for the same size for ever

    def __post_init__(self) -> None:
        self.rng = self.shared.rng(self.name)
        self.version = self.rng.choice(VERSIONS)
        draw = self.shared.rng(f"{self.name}/size")
        self.sizes_bytes = (draw.choice(SIZES_BYTES),) if draw.random() < SHARE_WITH_ONE_SIZE else SIZES_BYTES

    def fetch_request(
        self, positions: dict[tuple[str, int], int], *, partition_size_bytes: int = 0, **options: Any
    ) -> FetchRequest | None:
        """A request for the topics that exist now."""
        topics = []
        for (name, partition), offset in positions.items():
            life = self.shared.topics.get(name)
            if life is not None:
                asked = FetchPartition(
                    partition=partition,
                    fetch_offset=offset,
                    partition_max_bytes=partition_size_bytes or self.rng.choice(self.sizes_bytes),
                )
                topics.append(FetchTopic(topic=name, topic_id=life.topic_id, partitions=[asked]))
        if not topics:
            return None
        return FetchRequest(topics=topics, isolation_level=self.rng.randint(0, 1), **options)

    def note_answers(
        self, positions: dict[tuple[str, int], int], invoked: int, answer: Any, *, names: dict[bytes, str]
    ) -> list[tuple[tuple[str, int], Read]]:
        """The reads of all partitions of a fetch. Those of a topic that must have answered are noted in the history."""
        history = self.shared.history
        completed = history.tick()
        found = []
        for topic in answer.responses:
            for row in topic.partitions:
                name = topic.topic or names.get(topic.topic_id, "")
                key = (name, row.partition_index)
                topic_id = topic.topic_id if self.version >= FIRST_VERSION_WITH_IDS else None
                if topic_id is None:
                    life = history.life_of(name, invoked, completed)
                    topic_id = None if life is None else life.topic_id
                read = self._read(Place(topic_id or b"", row.partition_index), positions[key], invoked, completed, row)
                read.is_alone = len(positions) == 1
                found.append((key, read))
                if topic_id is not None:
                    history.reads.append(read)
                ends = [(batch.base_offset, batch.last_offset) for batch in read.batches]
                history.note("read", self.name, key, read.offset, read.error, read.high_watermark, ends)
        return found

    def _read(self, place: Place, offset: int, invoked: int, completed: int, row: Any) -> Read:
        read = Read(place, offset, invoked, completed, row.error_code, row.high_watermark, row.log_start_offset)
        batches: list[StoredBatch] = []
        try:
            if row.records is not None:
                batches.extend(parse_batches(memoryview(row.records)))
        except CorruptMessage as error:
            read.damage = str(error)
        read.batches = tuple(batches)
        return read

    async def read_at(
        self, connection: Connection, name: str, partition: int, offset: int, *, partition_size_bytes: int = 0
    ) -> Read | None:
        """Fetch once, without waiting; None if the topic does not exist. Errors: LOST."""
        positions = {(name, partition): offset}
        request = self.fetch_request(positions, partition_size_bytes=partition_size_bytes, max_wait_ms=0, min_bytes=0)
        if request is None:
            return None
        names = self.names()
        invoked = self.shared.history.tick()
        answer = await self.shared.ask(connection, request, self.version)
        found = self.note_answers(positions, invoked, answer, names=names)
        return found[0][1] if found else None

    async def list_offset(self, connection: Connection, name: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset in a ListOffsets reply, which is noted; None for an error. Errors: LOST."""
        history = self.shared.history
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)
        invoked = history.tick()
        answer = await self.shared.ask(
            connection,
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[asked])]),
            self.rng.choice((7, 8, 10)),
        )
        completed = history.tick()
        row = answer.topics[0].partitions[0]
        history.note("list", self.name, name, partition, timestamp_ms, row.error_code, row.offset, row.timestamp)
        if row.error_code:
            return None
        life = history.life_of(name, invoked, completed)
        if life is not None:
            place = Place(life.topic_id, partition)
            history.lookups.append(Lookup(place, timestamp_ms, invoked, completed, row.offset, row.timestamp))
        return int(row.offset)

    def names(self) -> dict[bytes, str]:
        """Topic ids to names, for answers that have ids only."""
        return {life.topic_id: life.name for life in self.shared.history.topics.values()}


@dataclass
class Follower(Consumer):
    """A consumer that reads partitions to their ends, and waits there for more, until it has reached the final ends.

    `rewinds`: it begins again now and then, so that it reads what was read before, and has left the page cache since.
    """

    uses_session: bool = True
    rewinds: bool = False
    _positions: dict[tuple[str, int], int] = field(default_factory=dict)
    _ids: dict[str, bytes] = field(default_factory=dict)
    _empty_answers: int = 0

    async def run(self) -> None:
        while not self._is_done():
            connection = await self.shared.connected(self.name, self.rng)
            try:
                await self._follow(connection)
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    def _is_done(self) -> bool:
        ends = self.shared.followers_until
        if ends is None:
            return False
        for name, partition in self.places:
            life = self.shared.topics.get(name)
            if life is not None and not self.shared.plans[name].is_volatile:
                end = ends.get(Place(life.topic_id, partition), 0)  # a missing end was noted as trouble
                if self._positions.get((name, partition), 0) < end:
                    return False
        return True

    async def _follow(self, connection: Connection) -> None:
        session_id, epoch = 0, 0
        has_session = self.uses_session and self.version >= FIRST_VERSION_WITH_SESSIONS
        draw = self.shared.rng(f"{self.name}/rewind")
        sent_positions: dict[tuple[str, int], int] = {}
        while not self._is_done():
            if not await self._find_positions(connection):
                session_id, epoch = 0, 0
            wanted = dict(self._positions)
            if has_session and epoch > 0:
                wanted = {key: offset for key, offset in wanted.items() if sent_positions.get(key) != offset}
            options: dict[str, Any] = {"session_id": session_id, "session_epoch": epoch} if has_session else {}
            request = self.fetch_request(
                wanted,
                max_wait_ms=self.rng.choice((50, 500, 2000)),
                min_bytes=self.rng.choice((1, 1, 1, 3000)),
                max_bytes=self.rng.choice((2000, 1 << 20)),
                **options,
            ) or FetchRequest(max_wait_ms=500, min_bytes=1, **options)
            if not request.topics and epoch == 0:
                await trio.sleep(0.1)
                continue
            names = self.names()
            invoked = self.shared.history.tick()
            answer = await self.shared.ask(connection, request, self.version)
            if answer.error_code:
                session_id, epoch, sent_positions = 0, 0, {}
                await trio.sleep(0.01)
                continue
            self._note_progress(answer)
            if has_session:
                session_id, epoch = answer.session_id, epoch + 1 if answer.session_id else 0
            sent_positions.update(wanted)
            is_bad = False
            for key, read in self.note_answers(dict(self._positions), invoked, answer, names=names):
                is_bad |= self._advance(key, read)
            if self.rewinds and not self.shared.is_over and draw.random() < REWIND_SHARE:
                self._positions.clear()
            if is_bad:
                session_id, epoch, sent_positions = 0, 0, {}
                await trio.sleep(0.05)

    def _note_progress(self, answer: Any) -> None:
        """Note trouble after many answers in a row without error and records, below the last stable offset."""
        names = self.names()
        rows = [
            ((topic.topic or names.get(topic.topic_id, ""), row.partition_index), row)
            for topic in answer.responses
            for row in topic.partitions
        ]
        if not rows:
            return  # of a session, which names only what has changed
        is_empty = not any(row.error_code or row.records for _, row in rows)
        is_waiting = any(
            self._positions.get(key, 0) < min(row.high_watermark, row.last_stable_offset) for key, row in rows
        )
        self._empty_answers = self._empty_answers + 1 if is_empty and is_waiting else 0
        if self._empty_answers == EMPTY_ANSWERS_MAX:
            self.shared.history.troubles.append(f"{self.name}: {EMPTY_ANSWERS_MAX} fetches in a row brought nothing")

    async def _find_positions(self, connection: Connection) -> bool:
        """Find a start for partitions without a position. Return False if the set of partitions has changed."""
        is_same = True
        for name, partition in self.places:
            life = self.shared.topics.get(name)
            key = (name, partition)
            if life is None or self._ids.get(name) != life.topic_id:
                for other in [other for other in self._positions if other[0] == name]:
                    del self._positions[other]
                    is_same = False
                if life is not None:
                    self._ids[name] = life.topic_id
            if life is not None and key not in self._positions:
                spec = self.rng.choice((EARLIEST, EARLIEST, LATEST, self.shared.now_ms() - 2000))
                start = await self.list_offset(connection, name, partition, spec)
                if start is not None and start >= 0:
                    self._positions[key] = start
                    is_same = False
        return is_same

    def _advance(self, key: tuple[str, int], read: Read) -> bool:
        """Advance the position. Return whether the partition needs another start."""
        if read.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.pop(key, None)
        elif not read.error and read.batches:
            self._positions[key] = read.batches[-1].last_offset + 1
        return bool(read.error)


@dataclass
class Wanderer(Consumer):
    """Single reads at random offsets, and searches by timestamp."""

    pause_s: float

    async def run(self) -> None:
        while not self.shared.is_over:
            connection = await self.shared.connected(self.name, self.rng)
            try:
                while not self.shared.is_over:
                    await trio.sleep(self.rng.expovariate(1 / self.pause_s))
                    await self.wander(connection, *self.rng.choice(self.places))
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    async def wander(self, connection: Connection, name: str, partition: int) -> None:
        """Do one or two operations. Errors: LOST."""
        if name not in self.shared.topics:
            return
        kind = self.rng.random()
        if kind < 0.4:
            timestamp_ms = self.shared.now_ms() - self.rng.randint(-3000, 20_000)
            await self.list_offset(connection, name, partition, timestamp_ms)
        elif kind < 0.5:
            await self.list_offset(connection, name, partition, MAX_TIMESTAMP)
        else:
            end = await self.list_offset(connection, name, partition, LATEST)
            if end:
                await self.read_at(connection, name, partition, self.rng.randrange(end))
