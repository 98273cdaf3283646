"""The manifests of one partition in a store: reading the newest one, and adding the next. docs/formats/tier.md.

The store only has to put an object if there is none, so that one of all writers of a version succeeds. A writer that
may not write any more finds out at its next write, at the latest: `Fenced`. A put without a reply needs no clean-up:
the next change finds its result.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tiering.errors import Fenced
from tiering.manifest.codec import decode_manifest, decode_page, encode_manifest, encode_page
from tiering.manifest.manifest import PAGE_ENTRIES, Fence, Manifest, Page, SegmentEntry
from tiering.names import VERSIONS_PER_BLOCK, Place, block_of, version_of
from tiering.object_store import Content, ObjectExists, ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable

KEPT_VERSIONS_MIN = 16
KEPT_MS = 86_400_000
MANIFEST_MAX_BYTES = 64 * 1024  # the oldest entries of a larger manifest move to a page
TRIES_MAX = 100  # of one change, if another writer is always first
LISTINGS_MAX = 3


@dataclass(frozen=True, slots=True)
class Author:
    """A writer: a leader in its epoch, and its process. `new_nonce`: 32 hex digits that are never used again."""

    fence: Fence
    incarnation: str
    new_nonce: Callable[[], str]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Change:
    """The next manifest, and entries that are to go into a new first page."""

    manifest: Manifest
    first_page: Sequence[SegmentEntry] = ()


Decide = Callable[[Manifest], Awaitable[Change | None]]


class ManifestLog:
    """The manifests of one partition. One change at a time; `newest` is the newest version that was met, if any."""

    def __init__(self, store: ObjectStore, place: Place, author: Author) -> None:
        self.newest: Manifest | None = None
        self._store = store
        self._place = place
        self._author = author

    async def load(self) -> Manifest:
        """The newest version. Raises Fenced if another process with the same fence, or a higher fence, has written it.

        Also raises TierDamaged, OtherVersion and StoreError.
        """
        manifest = self.newest or await self._listed()
        for _ in range(LISTINGS_MAX):
            manifest = await self._following(manifest)
            if manifest.is_deleted or not await self._is_collected(manifest.version + 1):
                self._note(manifest)
                return manifest
            manifest = await self._listed()  # the listing lags behind by more than the versions kept
        raise StoreUnavailable(f"{self._place.manifests}: the listing lags behind")

    def is_ours(self, manifest: Manifest) -> bool:
        """Whether this author has written the manifest."""
        return manifest.fence == self._author.fence and manifest.incarnation == self._author.incarnation

    async def change(self, decide: Decide) -> Manifest:
        """Write the result of `decide` on the newest version; returns the newest version.

        `decide` may be called more than once; None means that nothing is to change. Raises as `load`; after
        StoreUnavailable, the version may have been written.
        """
        manifest = self.newest or await self.load()
        for _ in range(TRIES_MAX):
            change = await decide(manifest)
            if change is None:
                return manifest
            fresh = await self._with_pages(change)
            if await self._write(fresh):
                return fresh
            manifest = await self.load()  # another writer, or an earlier try, has written
        raise StoreUnavailable(f"{self._place.manifests}: others write all the time")

    async def page(self, page: Page) -> tuple[SegmentEntry, ...]:
        """The entries of a page. Raises TierDamaged, OtherVersion and StoreError: ObjectMissing if the page is
        doomed."""
        key = self._place.page(page)
        return decode_page(await self._store.get(key), page, key)

    async def entries(self, manifest: Manifest, behind: int = 0) -> list[SegmentEntry]:
        """The entries that end above offset `behind`, in order; pages without any are not read. Raises as `page`."""
        pages = [page for page in manifest.pages if page.end > behind]
        found = [*[one for page in pages for one in await self.page(page)], *manifest.entries]
        return [one for one in found if one.end > behind]

    async def collect(self) -> int:
        """Delete old versions; returns how many. Raises StoreError."""
        newest = (self.newest or await self.load()).version
        if newest < VERSIONS_PER_BLOCK + KEPT_VERSIONS_MIN - 1:
            return 0
        after, count = "", 0
        while found := await self._store.list_after(self._place.manifests, after):
            block = block_of(version_of(found[0].key))
            members = [one for one in found if block_of(version_of(one.key)) == block]
            after = members[-1].key
            if not await self._may_go(block, newest, members[-1]):
                break
            await self._put_once(self._place.collected(block))
            for one in members:  # oldest first: if one exists, all behind it exist
                await self._store.delete(one.key)
                count += 1
        return count

    async def close(self) -> None:
        """Mark all blocks of a deleted partition as collected, for good.

        A writer that was stopped while versions were deleted may find its version number free; the mark fences it.
        """
        newest = await self.load()
        assert newest.is_deleted
        for block in range(block_of(newest.version + 1) + 1):
            await self._put_once(self._place.collected(block))

    async def _may_go(self, block: int, newest: int, last: ObjectInfo) -> bool:
        """Whether a block of versions may be deleted. `last` is its last version in a listing."""
        last_version = (block + 1) * VERSIONS_PER_BLOCK - 1
        if newest - last_version < KEPT_VERSIONS_MIN:
            return False
        if version_of(last.key) != last_version:
            return await self._is_collected(last_version)
        return self._author.now_ms() - last.modified_ms >= KEPT_MS

    async def _put_once(self, key: str) -> None:
        try:
            await self._store.put(key, Content.of(b""), if_absent=True)
        except ObjectExists:
            return

    async def _is_collected(self, version: int) -> bool:
        return await self._store.head(self._place.collected(block_of(version))) is not None

    async def _listed(self) -> Manifest:
        """A version that exists: the last of a listing, or version 0 if the listing is empty."""
        after = ""
        while found := await self._store.list_after(self._place.manifests, after):
            after = found[-1].key
        if not after:
            return Manifest()
        try:
            return await self._read(version_of(after))
        except ObjectMissing:
            raise StoreUnavailable(f"{after} is listed, and not there (any more)") from None

    async def _following(self, manifest: Manifest) -> Manifest:
        """The last version that follows without a gap."""
        while True:
            try:
                manifest = await self._read(manifest.version + 1)
            except ObjectMissing:
                return manifest

    async def _read(self, version: int) -> Manifest:
        key = self._place.manifest(version)
        return decode_manifest(await self._store.get(key), key)

    def _note(self, manifest: Manifest) -> None:
        """Keep the newest version. Raises Fenced."""
        ours, author = self._author.fence, self._author
        is_other = manifest.fence == ours and manifest.incarnation != author.incarnation
        if manifest.version and (manifest.fence > ours or is_other):
            raise Fenced(f"{self._place.prefix} was written to in {manifest.fence}, we are in {ours}")
        self.newest = manifest

    async def _with_pages(self, change: Change) -> Manifest:
        """Put new pages, and set version, fence and time of the manifest."""
        manifest, author = change.manifest, self._author
        if change.first_page:
            page = await self._put_page(change.first_page, manifest.generation)
            manifest = replace(manifest, pages=(page, *manifest.pages))
        manifest = replace(
            manifest,
            version=manifest.version + 1,
            fence=author.fence,
            incarnation=author.incarnation,
            nonce=author.new_nonce(),
            written_ms=author.now_ms(),
        )
        while len(manifest.entries) > PAGE_ENTRIES and len(encode_manifest(manifest)) > MANIFEST_MAX_BYTES:
            page = await self._put_page(manifest.entries[:PAGE_ENTRIES], manifest.generation)
            manifest = replace(manifest, pages=(*manifest.pages, page), entries=manifest.entries[PAGE_ENTRIES:])
        return manifest

    async def _put_page(self, entries: Sequence[SegmentEntry], generation: int) -> Page:
        page, content = encode_page(entries, generation)
        await self._store.put(self._place.page(page), Content.of(content))
        return page

    async def _write(self, manifest: Manifest) -> bool:
        """Put the next version; returns whether this writer did. Raises Fenced."""
        key = self._place.manifest(manifest.version)
        try:
            await self._store.put(key, Content.of(encode_manifest(manifest)), if_absent=True)
        except ObjectExists:
            try:
                occupant = await self._read(manifest.version)
            except ObjectMissing:
                return False  # collected meanwhile
            if occupant.nonce != manifest.nonce:
                return False
        if await self._is_collected(manifest.version):
            raise Fenced(f"{key} was written and collected by others meanwhile")
        self.newest = manifest
        return True
