"""Anomalies in a bucket: segments that are lost, wrong, doubled or out of place, and objects that no manifest names.

Pure: objects and the last broker's state of its logs in, anomalies out. The check comes when the store is healed and
the broker has finished its work; docs/formats/tier.md says which objects may be there then.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from crc32c import crc32c

from engine.batches.batch import (
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    BatchHeader,
    has_right_crc,
    parse_header,
    walk_records,
)
from engine.batches.codecs import decompress
from kafkawire.tests.simulation.checker import Anomaly
from kafkawire.tests.simulation.history import Value
from tiering.errors import TierError
from tiering.manifest.codec import decode_manifest, decode_page
from tiering.manifest.manifest import Manifest, SegmentEntry
from tiering.names import Place
from tiering.segment_object import read_trailer

Objects = Mapping[str, bytes]
NOTHING = Manifest()
OF_A_PARTITION = re.compile(r".*/[0-9a-f]{32}/\d+/")  # a bucket also has other objects, which are not checked here


class TieredLog(NamedTuple):
    """A partition in the tier, as its broker sees it. `records`: the values that consumers have read, by offset, or
    None if no consumer has read it; `is_whole`: the reads include aborted transactions."""

    name: str
    place: Place
    log_start: int
    local_start: int
    tiered_to: int | None
    records: Mapping[int, Value] | None = None
    is_whole: bool = True


def check_bucket(objects: Objects, logs: Sequence[TieredLog], others: Collection[str]) -> list[Anomaly]:
    """All anomalies. `others`: prefixes of keys that belong to no log, or to none any more."""
    found: list[Anomaly] = []
    known: set[str] = set()
    for log in logs:
        try:
            manifest = newest(objects, log.place)
            entries = _entries(objects, log.place, manifest)
        except (TierError, KeyError) as error:
            found.append(Anomaly("damaged tier", f"{log.name}: {error!r}"))
            continue
        known |= _known(objects, log.place, manifest, entries)
        found += uncovered(log, manifest)
        found += _places(log, manifest, entries)
        for entry in entries:
            found += _object(objects, log, manifest, entry)
    unknown = [key for key in objects if key not in known and not key.startswith(tuple(others))]
    return found + [Anomaly("orphan", key) for key in unknown if OF_A_PARTITION.match(key)]


def newest(objects: Objects, place: Place) -> Manifest:
    """The newest manifest; version 0 if there is none. Raises TierError."""
    keys = [key for key in objects if key.startswith(place.manifests)]
    return decode_manifest(objects[max(keys)], max(keys)) if keys else NOTHING


def _entries(objects: Objects, place: Place, manifest: Manifest) -> list[SegmentEntry]:
    """Raises TierError, KeyError."""
    pages = [(place.page(one), one) for one in manifest.pages]
    paged = [entry for key, page in pages for entry in decode_page(objects[key], page, key)]
    return [*paged, *manifest.entries]


def _known(objects: Objects, place: Place, manifest: Manifest, entries: Sequence[SegmentEntry]) -> set[str]:
    """All keys that may be there. A page that no manifest names belongs to a version that lost against another
    writer."""
    known = {place.segment(one) for one in entries} | {place.page(one) for one in manifest.pages}
    known |= {place.doomed(one) for one in manifest.doomed}
    if manifest.copying is not None:
        known.add(place.segment(manifest.copying))
    beside = (place.manifests, place.collections, f"{place.prefix}page/")
    return known | {key for key in objects if key.startswith(beside)}


def uncovered(log: TieredLog, manifest: Manifest) -> Iterator[Anomaly]:
    """Segments without files that are not copied."""
    if log.local_start > log.log_start:
        first, end = manifest.first_offset, manifest.end
        if first is None or end is None or first > log.log_start or end < log.local_start:
            missing = f"{log.log_start} to {log.local_start} have no files, {first} to {end} are copied"
            yield Anomaly("not copied", f"{log.name}: {missing}")


def _places(log: TieredLog, manifest: Manifest, entries: Sequence[SegmentEntry]) -> Iterator[Anomaly]:
    """Segments that do not continue each other, or differ from the range that the broker believes to be copied."""
    for before, behind in pairwise(entries):
        if before.end != behind.base:
            yield Anomaly("hole in the tier", f"{log.name}: {behind.base} behind {before.end}")
    if entries and (manifest.log_start, log.tiered_to) != (log.log_start, entries[-1].end):
        copied = f"{manifest.log_start} to {entries[-1].end} are copied"
        yield Anomaly("another tier", f"{log.name}: {copied}, its log has {log.log_start} to {log.tiered_to} there")
    if entries and entries[0].end <= log.log_start:
        yield Anomaly("below the log start", f"{log.name}: {entries[0].base}, the log begins at {log.log_start}")
    for doomed in manifest.doomed:
        yield Anomaly("not deleted", log.place.doomed(doomed))


def _object(objects: Objects, log: TieredLog, manifest: Manifest, entry: SegmentEntry) -> Iterator[Anomaly]:
    """Objects that are missing, differ from their entry, or lack the records of consumers."""
    key = log.place.segment(entry)
    data = objects.get(key)
    if data is None:
        yield Anomaly("lost object", key)
        return
    if len(data) != entry.object_size_bytes or crc32c(data) != entry.crc32c:
        yield Anomaly("wrong object", f"{key}: {len(data)} of {entry.object_size_bytes} bytes")
        return
    found: dict[int, Value] = {}
    for header, values in _batches(data[: entry.size_bytes]):
        found.update(values)
        offset = max(header.base_offset, manifest.log_start)  # the manifest has no epochs below the log start
        epoch = max((one for one in manifest.epochs if one[1] <= offset), default=(-1, 0))[0]
        if epoch != header.leader_epoch and header.next_offset > offset:
            yield Anomaly("lost epoch", f"{log.name} at {header.base_offset}: {header.leader_epoch} became {epoch}")
    try:
        read_trailer(data[entry.size_bytes :], key)
    except TierError as error:
        yield Anomaly("wrong object", str(error))
    yield from _records(log, entry, found)


def _records(log: TieredLog, entry: SegmentEntry, found: Mapping[int, Value]) -> Iterator[Anomaly]:
    if log.records is None:
        return
    start = min(log.records, default=entry.end)
    there = {offset: value for offset, value in log.records.items() if entry.base <= offset < entry.end}
    for offset, value in sorted(there.items()):
        if found.get(offset) != value:
            yield Anomaly("wrong segment", f"{log.name} at {offset}: {found.get(offset)}, consumers have {value}")
    if log.is_whole and (surplus := sorted(offset for offset in found if offset >= start and offset not in there)):
        yield Anomaly("wrong segment", f"{log.name}: no consumer has {surplus}")


def _batches(records: bytes) -> Iterator[tuple[BatchHeader, list[tuple[int, Value]]]]:
    """The batches with offsets and values of clients' records. AssertionError: the bytes are no segment."""
    data, position = memoryview(records), 0
    while position < len(data):
        header = parse_header(data, position)
        batch = data[position : position + header.size_bytes]
        assert has_right_crc(batch, header), f"position {position}"
        is_control = header.attributes & CONTROL_BIT
        yield header, [] if is_control else list(_values(header, batch[HEADER_SIZE_BYTES:]))
        position += header.size_bytes


def _values(header: BatchHeader, body: memoryview) -> Iterator[tuple[int, Value]]:
    for record in walk_records(header, decompress(header.codec_id, bytes(body))):
        assert record.value is not None
        writer, number, _ = record.value.split(b":", 2)
        yield header.base_offset + record.offset_delta, (int(writer), int(number))
