"""Whether the bytes of a segment are what is told of it: pure.

They come in pieces, from the beginning on. What is wrong is noted, and it goes on with the next batch, as far as the
length of the wrong one can be believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from spark_connectors.records.batches import (
    HEADER_FORMAT,
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    MAGIC,
    Batch,
    batches_of,
)
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.groups import Group, groups_of
from spark_connectors.records.rows import rows_of
from spark_connectors.segments.sealed import Aborted, Segment

FINDINGS_MAX: Final = 100  # of a segment that are kept
_DIGEST_SIZE_BYTES: Final = 32
_DIGESTED_BYTES: Final = 21  # of each batch: docs/formats/footer.md
_ANY_MS: Final = -(1 << 63)


class What(StrEnum):
    """Is wrong."""

    BATCH = "batch"  # fails its CRC, or is none
    OFFSETS = "offsets"  # do not ascend, or do not belong to the segment
    RECORDS = "records"  # there are more of, or fewer
    TIMES = "times"  # are not within those that are told
    DIGEST = "digest"
    SIZE = "size"
    POSITION = "position"  # where a batch is told to begin, and none does
    ABORTED = "aborted"  # transactions are told, and their markers tell otherwise
    TRAILER = "trailer"  # of an object, or the footer beside a file


class Finding(NamedTuple):
    """At a position of the segment, and an offset, as far as there are such."""

    what: What
    detail: str
    position: int | None = None
    offset: int | None = None


@dataclass
class Findings:
    """The first ones, and how many more there are."""

    kept: list[Finding] = field(default_factory=list)
    left_out: int = 0

    def add(self, what: What, detail: str, position: int | None = None, offset: int | None = None) -> None:
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(Finding(what, detail, position, offset))
        else:
            self.left_out += 1


class SegmentAudit:
    """`aborted`: the transactions that are told; None: nobody has told. `positions`: (offset, position) of batches.
    With `has_records` records are looked at, too, and not only headers and CRCs."""

    def __init__(
        self,
        segment: Segment,
        findings: Findings,
        aborted: Aborted | None,
        positions: Iterable[tuple[int, int]] = (),
        *,
        has_records: bool = False,
    ) -> None:
        self.findings = findings
        self.position = 0  # up to here it is done
        self.batches = self.records = 0
        self.is_over = False
        self._segment = segment
        self._has_records = has_records
        self._told = {position: offset for offset, position in positions}
        self._next_offset = segment.base
        self._least_ms = segment.min_timestamp_ms if segment.min_timestamp_ms >= 0 else _ANY_MS
        self._digest = blake2b(digest_size=_DIGEST_SIZE_BYTES)
        self._transactions = None if aborted is None else _Transactions(aborted, findings)

    def take(self, view: memoryview) -> int:
        """Bytes from the position on. Says with how many of them it has done: with none where no batch is whole."""
        begun = self.position
        try:
            batches = batches_of(view)
        except MalformedBatch:
            self._one_by_one(view)
        else:
            self.add(batches, view)
            if not batches and len(view) >= HEADER_SIZE_BYTES:
                self._end_of(view, 0)
        return self.position - begun

    def finish(self) -> None:
        """After the last piece."""
        segment, note = self._segment, self.findings.add
        if self.position != segment.size_bytes:
            left = segment.size_bytes - self.position
            note(What.SIZE, f"behind the last batch there are {left} bytes that are none", self.position)
            return
        if self._digest.hexdigest() != segment.digest:
            note(What.DIGEST, f"it is {self._digest.hexdigest()}, and {segment.digest} is told")
        if self.records != segment.records != -1:
            note(What.RECORDS, f"there are {self.records}, and {segment.records} are told")
        for position, offset in sorted(self._told.items()):
            note(What.POSITION, f"no batch begins there with offset {offset}", position, offset)
        if self._transactions is not None:
            self._transactions.finish(segment.end)

    def _one_by_one(self, view: memoryview) -> None:
        """Batches of which one is wrong."""
        base = self.position
        while not self.is_over and (begin := self.position - base) + HEADER_SIZE_BYTES <= len(view):
            end = self._end_of(view, begin)
            if end is None or end > len(view):
                return
            part = view[begin:end]
            try:
                self.add(batches_of(part), part)
            except MalformedBatch as error:
                self.findings.add(What.BATCH, str(error), self.position, int.from_bytes(part[:8], "big", signed=True))
                self._pass_over(part)

    def _end_of(self, view: memoryview, begin: int) -> int | None:
        """Of the batch that begins there; None: none does, and nobody knows where the next one is."""
        _, length, _, magic, *_ = struct.unpack_from(HEADER_FORMAT, view, begin)
        end: int = begin + LENGTH_PREFIX_SIZE_BYTES + length
        if (
            magic == MAGIC
            and end >= begin + HEADER_SIZE_BYTES
            and self.position + end - begin <= self._segment.size_bytes
        ):
            return end
        self.findings.add(What.BATCH, "no batch begins there", self.position)
        self.is_over = True
        return None

    def _pass_over(self, part: memoryview) -> None:
        """A batch whose header is believed as far as it has to be."""
        base_offset, _, _, _, _, _, last_delta, *_, records = struct.unpack_from(HEADER_FORMAT, part)
        self._told.pop(self.position, None)
        self._digest.update(part[:_DIGESTED_BYTES])
        self.batches += 1
        self.records += max(records, 0)
        self.position += len(part)
        self._next_offset = max(self._next_offset, min(base_offset + last_delta + 1, self._segment.end))

    def add(self, batches: Sequence[Batch], view: memoryview) -> None:
        """Those that come next, of bytes that begin at the position."""
        begun = self.position
        for one in batches:
            position = begun + one.position
            self._digest.update(view[one.position : one.position + _DIGESTED_BYTES])
            if self._told.get(position) == one.base_offset:
                del self._told[position]
            self._check(one, position)
            self._next_offset = one.next_offset
            self.records += one.records
        self.batches += len(batches)
        self.position = begun + (batches[-1].end if batches else 0)
        if self._has_records:
            self._check_records(batches, view, begun)

    def _check(self, one: Batch, position: int) -> None:
        segment, note = self._segment, self.findings.add
        if one.base_offset < self._next_offset or one.next_offset > segment.end:
            detail = f"it has offsets {one.base_offset} to {one.next_offset - 1}, where {self._next_offset} to "
            note(What.OFFSETS, f"{detail}{segment.end - 1} may be", position, one.base_offset)
        if one.records and one.max_timestamp_ms > segment.max_timestamp_ms:
            note(
                What.TIMES,
                f"{one.max_timestamp_ms} is later than {segment.max_timestamp_ms}",
                position,
                one.base_offset,
            )
        if one.records and one.is_log_append_time and one.max_timestamp_ms < self._least_ms:
            detail = f"{one.max_timestamp_ms} is earlier than {self._least_ms}"
            note(What.TIMES, detail, position, one.base_offset)
        if self._transactions is not None:
            self._transactions.add(one, position)

    def _check_records(self, batches: Sequence[Batch], view: memoryview, begun: int) -> None:
        try:
            for group in groups_of(view, batches):
                self._check_times(group, begun)
        except MalformedBatch as error:
            if len(batches) > 1:
                for one in batches:
                    self._check_records([one], view, begun)
            else:
                self.findings.add(What.BATCH, str(error), begun + batches[0].position, batches[0].base_offset)

    def _check_times(self, group: Group, begun: int) -> None:
        """Of records of batches whose producers have set them."""
        times_ms = rows_of(group, with_headers=True).timestamps_ms
        firsts = np.cumsum(group.counts) - group.counts
        latest_ms, earliest_ms = np.maximum.reduceat(times_ms, firsts), np.minimum.reduceat(times_ms, firsts)
        for one, last_ms, first_ms in zip(group.batches, latest_ms.tolist(), earliest_ms.tolist(), strict=True):
            if last_ms > one.max_timestamp_ms:
                detail = f"a record has {last_ms}, and its batch says {one.max_timestamp_ms}"
                self.findings.add(What.TIMES, detail, begun + one.position, one.base_offset)
            if first_ms < self._least_ms:
                detail = f"a record has {first_ms}, earlier than {self._least_ms}"
                self.findings.add(What.TIMES, detail, begun + one.position, one.base_offset)


class _Transactions:
    """Those that are told to be aborted, and what their markers say. A transaction has its marker behind all that it
    has written; compaction may have left either, but never what was aborted without its marker."""

    def __init__(self, aborted: Aborted, findings: Findings) -> None:
        self._aborted = aborted
        self._findings = findings
        self._open: dict[int, tuple[int, int]] = {}  # by producer: position and offset of what it has written

    def add(self, one: Batch, position: int) -> None:
        """The next batch; of one that compaction has emptied nobody knows what it was part of."""
        if not (one.is_transactional and one.records):
            return
        if not one.is_control:
            self._open.setdefault(one.producer_id, (position, one.base_offset))
        else:
            begun = self._open.pop(one.producer_id, None)
            if begun is not None:
                self._check(one, begun[1], position)

    def finish(self, end: int) -> None:
        """`end` of the segment."""
        for producer_id, (position, offset) in self._open.items():
            for first, last in self._told(producer_id, offset):
                if last < end:
                    detail = f"the transaction of producer {producer_id} from {first} on has no marker at {last}"
                    self._findings.add(What.ABORTED, detail, position, offset)

    def _check(self, marker: Batch, first_written: int, position: int) -> None:
        told = list(self._told(marker.producer_id, first_written))
        whose = f"the transaction of producer {marker.producer_id} with offset {first_written}"
        if marker.is_abort_marker and all(last != marker.base_offset for _, last in told):
            self._findings.add(What.ABORTED, f"{whose} was aborted, and is not told", position, marker.base_offset)
        if not marker.is_abort_marker and told:
            self._findings.add(
                What.ABORTED, f"{whose} was committed, and is told as aborted", position, marker.base_offset
            )

    def _told(self, producer_id: int, offset: int) -> Iterator[tuple[int, int]]:
        """First and last offset of those that hold one."""
        return ((first, last) for one, first, last in self._aborted if one == producer_id and first <= offset <= last)
