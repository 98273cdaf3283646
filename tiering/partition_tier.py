"""One partition's way into the tier: its sealed segments are copied, the oldest first, and what the log does without is
deleted there. docs/formats/tier.md has what each step leaves behind if it is the last one.

Each step looks at what is true in the bucket and may be done again, by this leader or the next. When one has failed it
is the caller's to wait before the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from engine.tier import SegmentFacts
from tiering.copy_rate import CopyRate
from tiering.errors import TierDamaged
from tiering.manifest import (
    Doomed,
    Entry,
    Manifest,
    begin_copy,
    diverge,
    end_copy,
    forget,
    is_below_start,
    shed,
    withdraw,
)
from tiering.manifest_log import Change, Decide, ManifestLog
from tiering.object_store import SLICE_BYTES, StoreUnavailable
from tiering.segment_object import SegmentObject, make_object

if TYPE_CHECKING:
    from engine.tier import CopiedSegment, TierableLog
    from tiering.names import Place
    from tiering.object_store import ObjectInfo, ObjectStore

READ_BACK_BYTES = 16 * SLICE_BYTES
FORGOTTEN_TOGETHER_MAX = 64


@dataclass(frozen=True, slots=True)
class TierOptions:
    """`late_put_ms`: how long a request may be under way and still take effect. `rate`: of all partitions."""

    delete_delay_ms: int = 60_000
    late_put_ms: int = 900_000
    rate: CopyRate = field(default_factory=CopyRate)


class Copied(NamedTuple):
    """What a step has done: bytes that were put, 0 when the object was there."""

    end_offset: int
    put_bytes: int


class PartitionTier:
    """Of a log that is led here, in one leadership. One step at a time; all raise what a store does, and Fenced,
    TierDamaged, OtherVersion, and what `TierableLog` does."""

    def __init__(
        self,
        log: TierableLog,
        store: ObjectStore,
        place: Place,
        manifests: ManifestLog,
        options: TierOptions,
        now_ms: Callable[[], int],
    ) -> None:
        self.log = log
        self.manifests = manifests
        self._store = store
        self._place = place
        self._options = options
        self._now_ms = now_ms
        self._is_confirmed = False

    async def confirm(self) -> None:
        """Once in a leadership: what the log believes of the tier is compared with what is there. The bucket may be
        another one, or another leader may have gone on. Before it nothing here may lose its file."""
        if self._is_confirmed:
            return
        manifest, log = await self._taken_over(), self.log
        if log.tiered_to is not None:
            first, end, covered = manifest.first_offset, manifest.end, log.log_start_offset
            if first is not None and end is not None and first <= covered:
                covered = max(covered, min(end, log.tiered_to))
            if covered < log.local_start_offset:
                lost = f"offsets {covered} to {log.local_start_offset}, which have no files here"
                raise TierDamaged(f"{self._place.prefix} lacks {lost}")
            log.note_tiered(covered)
        self._is_confirmed = True

    async def _taken_over(self) -> Manifest:
        """The newest manifest, in our name if there is any."""
        manifest = await self.manifests.load()
        return await self.manifests.change(self._in_our_name) if manifest.version else manifest

    async def _in_our_name(self, manifest: Manifest) -> Change | None:
        """Whoever led before writes no more, once there is a version of ours."""
        return None if self.manifests.is_ours(manifest) else Change(manifest)

    async def learn(self) -> None:
        """Tell the log what there is of it, if that is not known here: an index was lost. What does not fit is no
        answer; the next time may have another."""
        if self.log.knows_cold:
            return
        entries = await self.manifests.entries(await self.manifests.load())
        self.log.know_cold({one.base: _facts(one) for one in entries})

    # Copying

    async def copy_next(self) -> Copied | None:
        """Copy the oldest segment that is not; None: there is none, or another look is needed."""
        if self.log.tiered_to is None:
            self.log.note_tiered(self.log.log_start_offset)
        found = self.log.to_copy()
        if not found:
            return None
        base, end = found[0]
        manifest = await self._manifest()
        if manifest.end is not None and base != manifest.end:
            await (self._compare(base, end) if base < manifest.end else self._begin_anew(base))
            return None
        copied = await self.log.copy(base)
        made = await self._in_turn(make_object(copied))
        manifest = await self._manifest()  # of whoever wrote meanwhile

        async def begin(one: Manifest) -> Change | None:
            if one.end not in (None, base):
                raise StoreUnavailable("another segment was copied meanwhile")
            begun = begin_copy(one, base, end, made.digest, self._now_ms())
            return None if begun is one else Change(begun)

        begun = (await self.manifests.change(begin)).copying
        assert begun is not None
        is_resumed = begun == manifest.copying
        late_put_until_ms = self._now_ms() + self._options.late_put_ms if is_resumed else 0
        entry = _entry(copied, made, begun.generation, late_put_until_ms)
        put_bytes = await self._put(entry, made, may_be_there=is_resumed)

        async def finish(one: Manifest) -> Change | None:
            if any(each.intent == entry.intent for each in one.entries):
                return None  # a reply was lost
            if one.copying != entry.intent:
                raise TierDamaged(f"{self._place.segment(entry)} was being copied, and is so no more")
            return Change(end_copy(one, entry, copied.epochs))

        await self.manifests.change(finish)
        self.log.note_tiered(end)
        return Copied(end, put_bytes)

    async def _in_turn(self, made: SegmentObject) -> SegmentObject:
        """When it may be put, by the rate of all partitions; with how long that may take."""
        spread_s = await self._options.rate.turn(made.content.size_bytes)
        return made._replace(content=with_fields(made.content, spread_s=spread_s))

    async def _put(self, entry: Entry, made: SegmentObject, *, may_be_there: bool) -> int:
        """Have the object, all of it and right; returns how many bytes were put for it."""
        key, put_bytes = self._place.segment(entry), 0
        if not may_be_there or not await self._is_right(key, made):
            await self._store.put(key, made.content)
            put_bytes = made.content.size_bytes
            if not await self._is_right(key, made):
                raise StoreUnavailable(f"{key} was put, and is not what was put")
        return put_bytes

    async def _is_right(self, key: str, made: SegmentObject) -> bool:
        found = await self._store.head(key)
        if found is None or found.size_bytes != made.content.size_bytes:
            return False
        checksum = await self._read_back(found) if found.crc32c is None else found.crc32c
        return checksum == made.content.crc32c

    async def _read_back(self, found: ObjectInfo) -> int:
        """The CRC-32C of an object, for stores that cannot tell."""
        checksum = position = 0
        while position < found.size_bytes:
            data = await self._store.get(found.key, position, READ_BACK_BYTES)
            if not data:
                raise StoreUnavailable(f"{found.key} ends at {position}, not at {found.size_bytes}")
            checksum = crc32c(data, checksum)
            position += len(data)
        return checksum

    async def _compare(self, base: int, end: int) -> None:
        """What is copied already was copied from this log; or the log has parted from what is there."""
        digest = (await self.log.facts_of(base)).digest

        async def part(one: Manifest) -> Change | None:
            entries = await self.manifests.entries(one)
            if any(each.is_of(base, end, digest) for each in entries):
                return None
            if entries and base <= entries[0].base:
                there = f"offsets {entries[0].base} to {entries[-1].end}"
                raise TierDamaged(
                    f"{self._place.prefix} has {there}, and the log has others instead: nothing is deleted"
                )
            parted = diverge(one, base, self._now_ms(), entries[: len(entries) - len(one.entries)])
            return None if parted is one else Change(parted)

        manifest = await self.manifests.change(part)
        if manifest.end is not None and manifest.end >= end:
            self.log.note_tiered(end)

    async def _begin_anew(self, base: int) -> None:
        """The log begins behind what is there, of which nothing counts any more."""
        await self.shed()
        end = (await self.manifests.load()).end
        if end is not None and end < base:
            raise TierDamaged(f"{self._place.prefix} ends at {end}, and the files of the log begin at {base}")

    async def _manifest(self) -> Manifest:
        return self.manifests.newest or await self.manifests.load()

    # Deleting

    async def shed(self) -> None:
        """Note where the log begins, and doom what lies below."""

        async def begin_later(one: Manifest) -> Change | None:
            log_start = max(one.log_start, self.log.log_start_offset)
            is_in_page = one.pages and is_below_start(replace(one, log_start=log_start))
            first_page = await self.manifests.page(one.pages[0]) if is_in_page else ()
            after, rest = shed(one, log_start, self._now_ms(), first_page)
            return None if after == one else Change(after, rest)

        await self._until_settled(begin_later)

    async def _until_settled(self, decide: Decide) -> None:
        before: Manifest | None = None
        after = await self._manifest()
        while after.version and after != before:
            before, after = after, await self.manifests.change(decide)

    async def leave(self) -> bool:
        """The log is to be in no tier any more: it begins where its files do, and all that is there goes. Whether that
        is done; until then it is to be asked again."""
        await self.log.give_up_cold()
        await self._taken_over()

        async def have_nothing(one: Manifest) -> Change | None:
            first_page = await self.manifests.page(one.pages[0]) if one.pages else ()
            after, rest = withdraw(one, self._now_ms(), first_page)
            return None if after == one else Change(after, rest)

        await self._until_settled(have_nothing)
        await self.delete()
        manifest = await self._manifest()
        if manifest.doomed or not manifest.is_empty:
            return False
        self.log.note_untiered()
        return True

    async def delete(self) -> int:
        """What is doomed, and may go by now; returns how many objects."""
        manifest = await self._manifest()
        due = [one for one in manifest.doomed if self._is_due(one)][:FORGOTTEN_TOGETHER_MAX]
        gone = [one for one in due if await self._is_deleted(one)]

        async def forget_them(one: Manifest) -> Change | None:
            after = forget(one, gone)
            return None if after == one else Change(after)

        await self.manifests.change(forget_them)
        return len(gone)

    def _is_due(self, doomed: Doomed) -> bool:
        delay_ms = self._options.late_put_ms if doomed.late_put else self._options.delete_delay_ms
        return self._now_ms() - doomed.since_ms >= delay_ms

    async def _is_deleted(self, doomed: Doomed) -> bool:
        key = self._place.doomed(doomed)
        await self._store.delete(key)
        return await self._store.head(key) is None


def _facts(entry: Entry) -> SegmentFacts:
    return SegmentFacts(
        entry.base,
        entry.end,
        entry.size_bytes,
        entry.records,
        entry.first_timestamp_ms,
        entry.max_timestamp_ms,
        entry.leader_epoch,
        bytes.fromhex(entry.records_digest),
        entry.has_aborted,
        entry.min_timestamp_ms,
    )


def _entry(copied: CopiedSegment, made: SegmentObject, generation: int, late_put_until_ms: int) -> Entry:
    facts: SegmentFacts = copied.facts
    return Entry(
        base=facts.base_offset,
        end=facts.end_offset,
        generation=generation,
        digest=made.digest,
        records_digest=facts.digest.hex(),
        size_bytes=facts.size_bytes,
        object_size_bytes=made.content.size_bytes,
        crc32c=made.content.crc32c,
        records=facts.records,
        first_timestamp_ms=facts.first_timestamp_ms,
        max_timestamp_ms=facts.max_timestamp_ms,
        leader_epoch=facts.leader_epoch,
        has_aborted=facts.has_aborted,
        late_put_until_ms=late_put_until_ms,
        min_timestamp_ms=facts.min_timestamp_ms,
    )
