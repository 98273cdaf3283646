"""The upload of one partition: copy its sealed segments, oldest first, and delete there what the log has lost.

docs/formats/tier.md describes the state after each step, if it is the last one. Each step looks at the state of the
store, and may be repeated by this leader or the next. After a failure, the caller waits before the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from engine.tier import SegmentFacts
from tiering.errors import TierDamaged
from tiering.manifest.manifest import (
    Doomed,
    Manifest,
    SegmentEntry,
    begin_copy,
    diverge,
    end_copy,
    forget,
    is_below_start,
    shed,
    withdraw,
)
from tiering.manifest.manifest_log import Change, Decide, ManifestLog
from tiering.object_store import SLICE_BYTES, StoreUnavailable
from tiering.segment_object import SegmentObject, make_object
from tiering.upload.copy_rate import CopyRate

if TYPE_CHECKING:
    from engine.tier import CopiedSegment, TierableLog
    from tiering.names import Place
    from tiering.object_store import ObjectInfo, ObjectStore

READ_BACK_BYTES = 16 * SLICE_BYTES
FORGOTTEN_TOGETHER_MAX = 64


@dataclass(frozen=True, slots=True)
class TierOptions:
    """Options of uploads. `late_put_ms`: how long a request may be under way and still take effect. `rate`: shared by
    all partitions."""

    delete_delay_ms: int = 60_000
    late_put_ms: int = 900_000
    rate: CopyRate = field(default_factory=CopyRate)


class Copied(NamedTuple):
    """The result of a copy: the new end, and the bytes put; 0 if the object was there."""

    end_offset: int
    put_bytes: int


class PartitionTier:
    """The upload of a partition in one leader epoch. One step at a time.

    All steps raise StoreError, Fenced, TierDamaged, OtherVersion, and the errors of `TierableLog`.
    """

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
        """Compare the log's belief about the tier with the store, once in a leader epoch.

        The bucket may be another one, or another leader may have gone on. Before this, no segment may lose its file.
        """
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
        """The newest manifest, rewritten under this leader's fence if there is any."""
        manifest = await self.manifests.load()
        return await self.manifests.change(self._under_own_fence) if manifest.version else manifest

    async def _under_own_fence(self, manifest: Manifest) -> Change | None:
        """Rewrite the manifest under this fence, so that an earlier leader cannot write any more."""
        return None if self.manifests.is_ours(manifest) else Change(manifest)

    async def learn(self) -> None:
        """Tell the log its cold segments, if it does not know them, because an index was lost.

        Segments that do not fit are ignored; the next step may find others.
        """
        if self.log.knows_cold:
            return
        entries = await self.manifests.entries(await self.manifests.load())
        self.log.know_cold({one.base: _facts(one) for one in entries})

    # Copying

    async def copy_next(self) -> Copied | None:
        """Copy the oldest segment that is not copied; None if there is none, or another look is needed."""
        if self.log.tiered_to is None:
            self.log.note_tiered(self.log.log_start_offset)
        found = self.log.to_copy()
        if not found:
            return None
        base, end = found[0]
        manifest = await self._manifest()
        if manifest.end is not None and base != manifest.end:
            await (self._compare(base, end) if base < manifest.end else self._doom_all(base))
            return None
        copied = await self.log.copy(base)
        prepared = await self._wait_for_rate(make_object(copied))
        manifest = await self._manifest()  # another writer may have changed it meanwhile

        async def begin(one: Manifest) -> Change | None:
            if one.end not in (None, base):
                raise StoreUnavailable("another segment was copied meanwhile")
            started = begin_copy(one, base, end, prepared.digest, self._now_ms())
            return None if started is one else Change(started)

        intent = (await self.manifests.change(begin)).copying
        assert intent is not None
        is_resumed = intent == manifest.copying
        late_put_until_ms = self._now_ms() + self._options.late_put_ms if is_resumed else 0
        entry = _entry(copied, prepared, intent.generation, late_put_until_ms)
        put_bytes = await self._put(entry, prepared, may_be_there=is_resumed)

        async def finish(one: Manifest) -> Change | None:
            if any(each.intent == entry.intent for each in one.entries):
                return None  # a reply was lost
            if one.copying != entry.intent:
                raise TierDamaged(f"{self._place.segment(entry)} was being copied, and is so no more")
            return Change(end_copy(one, entry, copied.epochs))

        await self.manifests.change(finish)
        self.log.note_tiered(end)
        return Copied(end, put_bytes)

    async def _wait_for_rate(self, made: SegmentObject) -> SegmentObject:
        """Wait for the rate limit; returns the object with the seconds to spread it over."""
        spread_s = await self._options.rate.turn(made.content.size_bytes)
        return made._replace(content=with_fields(made.content, spread_s=spread_s))

    async def _put(self, entry: SegmentEntry, made: SegmentObject, *, may_be_there: bool) -> int:
        """Ensure that the object is in the store, complete and sound; returns the bytes put."""
        key, put_bytes = self._place.segment(entry), 0
        if not may_be_there or not await self._is_right(key, made):
            await self._store.put(key, made.content)
            put_bytes = made.content.size_bytes
            if not await self._is_right(key, made):
                raise StoreUnavailable(f"{key} was put, and its content differs")
        return put_bytes

    async def _is_right(self, key: str, made: SegmentObject) -> bool:
        found = await self._store.head(key)
        if found is None or found.size_bytes != made.content.size_bytes:
            return False
        checksum = await self._read_back(found) if found.crc32c is None else found.crc32c
        return checksum == made.content.crc32c

    async def _read_back(self, found: ObjectInfo) -> int:
        """Compute the CRC-32C of an object by reading it, for stores that do not have it."""
        checksum = position = 0
        while position < found.size_bytes:
            data = await self._store.get(found.key, position, READ_BACK_BYTES)
            if not data:
                raise StoreUnavailable(f"{found.key} ends at {position}, not at {found.size_bytes}")
            checksum = crc32c(data, checksum)
            position += len(data)
        return checksum

    async def _compare(self, base: int, end: int) -> None:
        """Compare a segment with the copied one. If they differ, the entries from there on are doomed.

        Raises TierDamaged, and deletes nothing, if the log diverges at the first entry or below.
        """
        digest = (await self.log.facts_of(base)).digest

        async def doom_from_there(one: Manifest) -> Change | None:
            entries = await self.manifests.entries(one)
            if any(each.is_of(base, end, digest) for each in entries):
                return None
            if entries and base <= entries[0].base:
                there = f"offsets {entries[0].base} to {entries[-1].end}"
                raise TierDamaged(
                    f"{self._place.prefix} has {there}, and the log has others instead: nothing is deleted"
                )
            diverged = diverge(one, base, self._now_ms(), entries[: len(entries) - len(one.entries)])
            return None if diverged is one else Change(diverged)

        manifest = await self.manifests.change(doom_from_there)
        if manifest.end is not None and manifest.end >= end:
            self.log.note_tiered(end)

    async def _doom_all(self, base: int) -> None:
        """Doom all copied segments, because the log begins behind them.

        Raises TierDamaged if the log start is not behind all of them.
        """
        await self.shed()
        end = (await self.manifests.load()).end
        if end is not None and end < base:
            raise TierDamaged(f"{self._place.prefix} ends at {end}, and the files of the log begin at {base}")

    async def _manifest(self) -> Manifest:
        return self.manifests.newest or await self.manifests.load()

    # Deleting

    async def shed(self) -> None:
        """Note the log start, and doom the segments below it."""

        async def raise_log_start(one: Manifest) -> Change | None:
            log_start = max(one.log_start, self.log.log_start_offset)
            is_in_page = one.pages and is_below_start(replace(one, log_start=log_start))
            first_page = await self.manifests.page(one.pages[0]) if is_in_page else ()
            after, rest = shed(one, log_start, self._now_ms(), first_page)
            return None if after == one else Change(after, rest)

        await self._until_settled(raise_log_start)

    async def _until_settled(self, decide: Decide) -> None:
        before: Manifest | None = None
        after = await self._manifest()
        while after.version and after != before:
            before, after = after, await self.manifests.change(decide)

    async def leave(self) -> bool:
        """Take the log out of the tier: it begins where its files begin, and its objects are deleted.

        Returns whether this is complete; until then the caller repeats it.
        """
        await self.log.give_up_cold()
        await self._taken_over()

        async def doom_entries(one: Manifest) -> Change | None:
            first_page = await self.manifests.page(one.pages[0]) if one.pages else ()
            after, rest = withdraw(one, self._now_ms(), first_page)
            return None if after == one else Change(after, rest)

        await self._until_settled(doom_entries)
        await self.delete()
        manifest = await self._manifest()
        if manifest.doomed or not manifest.is_empty:
            return False
        self.log.note_untiered()
        return True

    async def delete(self) -> int:
        """Delete doomed objects that are due; returns how many."""
        manifest = await self._manifest()
        due = [one for one in manifest.doomed if self._is_due(one)][:FORGOTTEN_TOGETHER_MAX]
        deleted = [one for one in due if await self._is_deleted(one)]

        async def forget_them(one: Manifest) -> Change | None:
            after = forget(one, deleted)
            return None if after == one else Change(after)

        await self.manifests.change(forget_them)
        return len(deleted)

    def _is_due(self, doomed: Doomed) -> bool:
        delay_ms = self._options.late_put_ms if doomed.late_put else self._options.delete_delay_ms
        return self._now_ms() - doomed.since_ms >= delay_ms

    async def _is_deleted(self, doomed: Doomed) -> bool:
        key = self._place.doomed(doomed)
        await self._store.delete(key)
        return await self._store.head(key) is None


def _facts(entry: SegmentEntry) -> SegmentFacts:
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


def _entry(copied: CopiedSegment, made: SegmentObject, generation: int, late_put_until_ms: int) -> SegmentEntry:
    facts: SegmentFacts = copied.facts
    return SegmentEntry(
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
