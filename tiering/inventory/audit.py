"""Audit of a store: size and CRC of every object that the manifests name, from its metadata or by reading it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c

from tiering.errors import TierError
from tiering.object_store import ObjectMissing
from tiering.parallel import for_each
from tiering.segment_object import read_trailer

if TYPE_CHECKING:
    from tiering.inventory.inventory import Part, PartitionHolding
    from tiering.manifest.manifest import SegmentEntry

AT_ONCE = 8
READ_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Audited:
    """The result of an audit: counts, and a line for each problem."""

    objects: int = 0
    size_bytes: int = 0
    problems: list[str] = field(default_factory=list)


async def audit(part: Part, holding: PartitionHolding, audited: Audited, *, reads: bool) -> None:
    """Audit all copied segments of a partition. Raises StoreError.

    `reads`: read every byte, and do not rely on the CRC that the store keeps.
    """
    manifests = part.log_of(holding.place)
    try:
        entries = await manifests.entries(holding.manifest)
    except (TierError, ObjectMissing) as error:
        audited.problems.append(str(error))
        return

    async def audit_segment(entry: SegmentEntry) -> None:
        await _audit_segment(part, holding, entry, audited, reads=reads)

    await for_each(entries, audit_segment, AT_ONCE)


async def _audit_segment(
    part: Part, holding: PartitionHolding, entry: SegmentEntry, audited: Audited, *, reads: bool
) -> None:
    key = holding.place.segment(entry)
    audited.objects += 1
    found = await part.store.head(key)
    if found is None:
        audited.problems.append(f"{key} is missing")
    elif found.size_bytes != entry.object_size_bytes:
        audited.problems.append(f"{key} has {found.size_bytes} bytes, not {entry.object_size_bytes}")
    elif found.crc32c not in (None, entry.crc32c):
        audited.problems.append(f"{key} has another CRC than it had")
    elif reads:
        await _read(part, key, entry, audited)


async def _read(part: Part, key: str, entry: SegmentEntry, audited: Audited) -> None:
    checksum = position = 0
    tail = bytearray()
    while position < entry.object_size_bytes:
        data = await part.store.get(key, position, READ_BYTES)
        if not data:
            audited.problems.append(f"{key} ends at {position}")
            return
        checksum = crc32c(data, checksum)
        tail += data[max(0, entry.size_bytes - position) :]
        position += len(data)
    audited.size_bytes += position
    if checksum != entry.crc32c:
        audited.problems.append(f"{key} differs from the object that was uploaded")
        return
    try:
        read_trailer(bytes(tail), key)
    except TierError as error:
        audited.problems.append(str(error))
