"""Opens a copy of the template with one bit wrong: no wrong byte may be served, and missing records must be reported.

The scrub reads the sealed segments again in the background, and reports those that differ from their footers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio

from engine.api import Isolation, PartitionLog
from engine.batches.batch import parse_header
from engine.errors import CorruptMessage, EngineError, OffsetOutOfRange, StorageError, StoreRefused
from engine.files.filesystem import PosixFileSystem
from engine.log_dirs.strays import Fate
from engine.store import SegmentStore
from engine.tests.bit_flips.template import CONFIG, LIVES, PRODUCER_ID, SLOT_SIZE_BYTES, Expected, StoredBatch, Template
from engine.upkeep.sealing import SealingOptions
from testkit.logs import MAX_BYTES, NOW_MS, append, bytes_of, fates, options, read, running

SCRUB_S = 10
SCRUBBING = SealingOptions(scrub_bytes_per_s=1 << 30, scrub_interval_ms=SCRUB_S * 1000)


@dataclass
class Findings:
    """Findings after a flip: `wrong` must be empty, `missing` may have entries only if `reported` has some.

    `is_flip_left`: the flipped bit is still there in the end.
    """

    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    is_flip_left: bool = False

    @property
    def anomalies(self) -> list[str]:
        return self.wrong if self.reported else self.wrong + self.missing


async def examine(directory: Path, template: Template) -> Findings:
    """Start a broker on the copy, check its records, append and retry, stop it, and start it again."""
    findings = Findings()
    for life in range(LIVES, LIVES + 2):
        fatal: list[str] = []
        try:
            async with running(
                PosixFileSystem(),
                replace(options(str(directory), journal_slot_size_bytes=SLOT_SIZE_BYTES), sealing=SCRUBBING),
                problems=findings.reported,
                fatal=fatal,
            ) as store:
                known = {one.partition.topic_id for one in template.partitions}
                await store.strays.apply_fates(fates(partial(_is_among, known), Fate.UNNAMED))
                for expected in template.partitions:
                    await _inspect(store, expected, life, findings)
                await trio.sleep(SCRUB_S + 1)
                await store.close()
        except* StoreRefused as refused:
            findings.reported += map(str, refused.exceptions)
        findings.reported += fatal
    return findings


def _is_among(known: set[bytes], topic_id: bytes, _partition: int) -> bool:
    return topic_id in known


async def _inspect(store: SegmentStore, expected: Expected, life: int, findings: Findings) -> None:
    try:
        log = await store.open_partition(expected.partition, CONFIG, life)
    except EngineError as error:
        findings.reported.append(str(error))
        return
    name = expected.partition.topic
    if log.log_start_offset != expected.start:
        findings.missing.append(f"{name} begins at {log.log_start_offset}, not {expected.start}")
    for batch in expected.visible:
        await _look_at_batch(log, batch, name, findings)
    if life > LIVES:
        return
    if log.high_watermark != expected.end_offset:
        where = findings.missing if log.high_watermark < expected.end_offset else findings.wrong
        where.append(f"{name} ends at {log.high_watermark}, not {expected.end_offset}")
    await _look_up_times(log, expected, findings)
    await _retry(log, expected, findings)
    try:
        await append(log, b"after the flip")
    except StorageError as error:
        findings.reported.append(str(error))


async def _look_at_batch(log: PartitionLog, batch: StoredBatch, name: str, findings: Findings) -> None:
    """Read from a batch on, and compare the batch with the stored one."""
    try:
        found = bytes_of((await read(log, max(batch.base_offset, log.log_start_offset), MAX_BYTES)).records)
    except CorruptMessage as error:
        findings.reported.append(str(error))
    except OffsetOutOfRange as error:
        findings.missing.append(f"{name}: {error}")
    else:
        size_bytes = len(batch.stored)
        if not found:
            findings.missing.append(f"{name}: nothing at {batch.base_offset}")
        elif found[:size_bytes] != batch.stored:
            is_new = parse_header(found).leader_epoch >= LIVES  # appended at the offsets of lost records
            (findings.missing if is_new else findings.wrong).append(f"{name}: other bytes at {batch.base_offset}")


async def _look_up_times(log: PartitionLog, expected: Expected, findings: Findings) -> None:
    records = [
        (batch.base_offset + number, time)
        for batch in expected.batches
        for number, time in enumerate(batch.timestamps_ms)
        if batch.base_offset + number >= expected.start
    ]
    for wanted in (NOW_MS, NOW_MS + 500, NOW_MS + 990):
        right = next((offset for offset, time in records if time >= wanted), -1)
        try:
            found = (await log.offset_for_timestamp(wanted, Isolation.READ_UNCOMMITTED)).offset
        except CorruptMessage as error:
            findings.reported.append(str(error))
            continue
        if found != right:
            findings.missing.append(f"{expected.partition.topic}: timestamp {wanted} is at {found}, not {right}")


async def _retry(log: PartitionLog, expected: Expected, findings: Findings) -> None:
    produced = [one for one in expected.batches if parse_header(one.sent).producer_id == PRODUCER_ID]
    for batch in produced[-5:]:
        try:
            found = (await log.append(memoryview(bytearray(batch.sent)), acks=-1).wait()).base_offset
        except EngineError as error:
            findings.missing.append(f"{expected.partition.topic}: retry of {batch.base_offset}: {error}")
            return
        if found != batch.base_offset:
            findings.missing.append(f"{expected.partition.topic}: retry of {batch.base_offset} went to {found}")
            return
