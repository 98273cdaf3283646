"""Comparison of a segment's bytes with its description: pure.

The bytes come in pieces, from the beginning on. A problem is noted, and the check continues with the next batch, if the
length of the wrong batch is plausible.
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

FINDINGS_MAX: Final = 100  # kept for each segment
_DIGEST_SIZE_BYTES: Final = 32
_DIGESTED_BYTES: Final = 21  # of each batch: docs/formats/footer.md
_ANY_MS: Final = -(1 << 63)


class ProblemKind(StrEnum):
    """Kinds of problems."""

    BATCH = "batch"  # fails its CRC, or is no batch
    OFFSETS = "offsets"  # do not ascend, or are outside the segment
    RECORDS = "records"  # differ in number from the description
    TIMES = "times"  # are outside the times of the description
    DIGEST = "digest"
    SIZE = "size"
    POSITION = "position"  # has no batch, although the description names one there
    ABORTED = "aborted"  # transactions of the description do not match the markers
    TRAILER = "trailer"  # of an object, or the footer beside a file


class Finding(NamedTuple):
    """A problem, with its position in the segment and its offset, if they are known."""

    kind: ProblemKind
    detail: str
    position: int | None = None
    offset: int | None = None


@dataclass
class Findings:
    """The first findings, and the number of the others."""

    kept: list[Finding] = field(default_factory=list)
    left_out: int = 0

    def add(self, kind: ProblemKind, detail: str, position: int | None = None, offset: int | None = None) -> None:
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(Finding(kind, detail, position, offset))
        else:
            self.left_out += 1


class SegmentAudit:
    """Audit of one segment. `aborted`: the aborted transactions of the description; None: it has none. `positions`:
    (offset, position) of batches. With `has_records`, records are checked too, and not only headers and CRCs.
    """

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
        self.position = 0  # all bytes before it are checked
        self.batches = self.records = 0
        self.is_over = False
        self._segment = segment
        self._has_records = has_records
        self._expected_positions = {position: offset for offset, position in positions}
        self._next_offset = segment.base
        self._least_ms = segment.min_timestamp_ms if segment.min_timestamp_ms >= 0 else _ANY_MS
        self._digest = blake2b(digest_size=_DIGEST_SIZE_BYTES)
        self._transactions = None if aborted is None else _Transactions(aborted, findings)

    def take(self, view: memoryview) -> int:
        """Check bytes from the position on. Returns the number of checked bytes; 0 if no batch is complete."""
        start = self.position
        try:
            batches = batches_of(view)
        except MalformedBatch:
            self._one_by_one(view)
        else:
            self.add(batches, view)
            if not batches and len(view) >= HEADER_SIZE_BYTES:
                self._end_of(view, 0)
        return self.position - start

    def finish(self) -> None:
        """Compare size, digest and counts after the last piece."""
        segment, note = self._segment, self.findings.add
        if self.position != segment.size_bytes:
            extra = segment.size_bytes - self.position
            note(ProblemKind.SIZE, f"behind the last batch there are {extra} bytes that are none", self.position)
            return
        if self._digest.hexdigest() != segment.digest:
            note(ProblemKind.DIGEST, f"it is {self._digest.hexdigest()}, and {segment.digest} is told")
        if self.records != segment.records != -1:
            note(ProblemKind.RECORDS, f"there are {self.records}, and {segment.records} are told")
        for position, offset in sorted(self._expected_positions.items()):
            note(ProblemKind.POSITION, f"no batch begins there with offset {offset}", position, offset)
        if self._transactions is not None:
            self._transactions.finish(segment.end)

    def _one_by_one(self, view: memoryview) -> None:
        """Check batches one by one, because one of them is wrong."""
        base = self.position
        while not self.is_over and (begin := self.position - base) + HEADER_SIZE_BYTES <= len(view):
            end = self._end_of(view, begin)
            if end is None or end > len(view):
                return
            part = view[begin:end]
            try:
                self.add(batches_of(part), part)
            except MalformedBatch as error:
                self.findings.add(
                    ProblemKind.BATCH, str(error), self.position, int.from_bytes(part[:8], "big", signed=True)
                )
                self._pass_over(part)

    def _end_of(self, view: memoryview, begin: int) -> int | None:
        """End of the batch that begins there. None: no batch begins there, and the next one cannot be found."""
        _, length, _, magic, *_ = struct.unpack_from(HEADER_FORMAT, view, begin)
        end: int = begin + LENGTH_PREFIX_SIZE_BYTES + length
        if (
            magic == MAGIC
            and end >= begin + HEADER_SIZE_BYTES
            and self.position + end - begin <= self._segment.size_bytes
        ):
            return end
        self.findings.add(ProblemKind.BATCH, "no batch begins there", self.position)
        self.is_over = True
        return None

    def _pass_over(self, part: memoryview) -> None:
        """Skip a wrong batch. Its header is used as far as necessary."""
        base_offset, _, _, _, _, _, last_delta, *_, records = struct.unpack_from(HEADER_FORMAT, part)
        self._expected_positions.pop(self.position, None)
        self._digest.update(part[:_DIGESTED_BYTES])
        self.batches += 1
        self.records += max(records, 0)
        self.position += len(part)
        self._next_offset = max(self._next_offset, min(base_offset + last_delta + 1, self._segment.end))

    def add(self, batches: Sequence[Batch], view: memoryview) -> None:
        """Check the next batches, in bytes that begin at the position."""
        base = self.position
        for one in batches:
            position = base + one.position
            self._digest.update(view[one.position : one.position + _DIGESTED_BYTES])
            if self._expected_positions.get(position) == one.base_offset:
                del self._expected_positions[position]
            self._check(one, position)
            self._next_offset = one.next_offset
            self.records += one.records
        self.batches += len(batches)
        self.position = base + (batches[-1].end if batches else 0)
        if self._has_records:
            self._check_records(batches, view, base)

    def _check(self, one: Batch, position: int) -> None:
        segment, note = self._segment, self.findings.add
        if one.base_offset < self._next_offset or one.next_offset > segment.end:
            detail = f"it has offsets {one.base_offset} to {one.next_offset - 1}, where {self._next_offset} to "
            note(ProblemKind.OFFSETS, f"{detail}{segment.end - 1} may be", position, one.base_offset)
        if one.records and one.max_timestamp_ms > segment.max_timestamp_ms:
            note(
                ProblemKind.TIMES,
                f"{one.max_timestamp_ms} is later than {segment.max_timestamp_ms}",
                position,
                one.base_offset,
            )
        if one.records and one.is_log_append_time and one.max_timestamp_ms < self._least_ms:
            detail = f"{one.max_timestamp_ms} is earlier than {self._least_ms}"
            note(ProblemKind.TIMES, detail, position, one.base_offset)
        if self._transactions is not None:
            self._transactions.add(one, position)

    def _check_records(self, batches: Sequence[Batch], view: memoryview, base: int) -> None:
        try:
            for group in groups_of(view, batches):
                self._check_times(group, base)
        except MalformedBatch as error:
            if len(batches) > 1:
                for one in batches:
                    self._check_records([one], view, base)
            else:
                self.findings.add(ProblemKind.BATCH, str(error), base + batches[0].position, batches[0].base_offset)

    def _check_times(self, group: Group, base: int) -> None:
        """Check the timestamps of records that producers have set."""
        times_ms = rows_of(group, with_headers=True).timestamps_ms
        firsts = np.cumsum(group.counts) - group.counts
        latest_ms, earliest_ms = np.maximum.reduceat(times_ms, firsts), np.minimum.reduceat(times_ms, firsts)
        for one, last_ms, first_ms in zip(group.batches, latest_ms.tolist(), earliest_ms.tolist(), strict=True):
            if last_ms > one.max_timestamp_ms and not one.has_wrong_max_timestamp:
                detail = f"a record has {last_ms}, and its batch says {one.max_timestamp_ms}"
                self.findings.add(ProblemKind.TIMES, detail, base + one.position, one.base_offset)
            if first_ms < self._least_ms:
                detail = f"a record has {first_ms}, earlier than {self._least_ms}"
                self.findings.add(ProblemKind.TIMES, detail, base + one.position, one.base_offset)


class _Transactions:
    """Comparison of the described aborted transactions with the markers. The marker of a transaction lies behind all
    its batches. Compaction may remove batches or markers, but it never keeps an aborted batch without its marker.
    """

    def __init__(self, aborted: Aborted, findings: Findings) -> None:
        self._aborted = aborted
        self._findings = findings
        self._open: dict[int, tuple[int, int]] = {}  # by producer: position and offset of its first open batch

    def add(self, one: Batch, position: int) -> None:
        """Take the next batch. A batch that compaction has emptied is ignored, as its transaction is not known."""
        if not (one.is_transactional and one.records):
            return
        if not one.is_control:
            self._open.setdefault(one.producer_id, (position, one.base_offset))
        else:
            first_batch = self._open.pop(one.producer_id, None)
            if first_batch is not None:
                self._check(one, first_batch[1], position)

    def finish(self, end: int) -> None:
        """Check transactions without a marker. `end`: end offset of the segment."""
        for producer_id, (position, offset) in self._open.items():
            for first, last in self._described(producer_id, offset):
                if last < end:
                    detail = f"the transaction of producer {producer_id} from {first} on has no marker at {last}"
                    self._findings.add(ProblemKind.ABORTED, detail, position, offset)

    def _check(self, marker: Batch, first_written: int, position: int) -> None:
        described = list(self._described(marker.producer_id, first_written))
        transaction = f"the transaction of producer {marker.producer_id} with offset {first_written}"
        if marker.is_abort_marker and all(last != marker.base_offset for _, last in described):
            self._findings.add(
                ProblemKind.ABORTED, f"{transaction} was aborted, and is not told", position, marker.base_offset
            )
        if not marker.is_abort_marker and described:
            self._findings.add(
                ProblemKind.ABORTED,
                f"{transaction} was committed, and is told as aborted",
                position,
                marker.base_offset,
            )

    def _described(self, producer_id: int, offset: int) -> Iterator[tuple[int, int]]:
        """First and last offset of the described transactions of the producer that contain the offset."""
        return ((first, last) for one, first, last in self._aborted if one == producer_id and first <= offset <= last)
