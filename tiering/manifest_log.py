"""The manifests of one partition in a store: the newest one, and how one more comes behind it. docs/formats/tier.md.

Needs no more of a store than that an object is put only if there is none, so that of all who write a version one has.
Who is not the one to write any more finds out, at the latest when it writes: `Fenced`. A try that ended without a reply
need not be settled: the next change finds whatever became of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tiering.errors import Fenced
from tiering.manifest import PAGE_ENTRIES, Entry, Fence, Manifest, Page
from tiering.manifest_codec import decode_manifest, decode_page, encode_manifest, encode_page
from tiering.names import VERSIONS_PER_BLOCK, Place, block_of, version_of
from tiering.object_store import Content, ObjectExists, ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable

KEPT_VERSIONS_MIN = 16
KEPT_MS = 86_400_000
MANIFEST_MAX_BYTES = 64 * 1024  # beyond it the oldest entries move to a page
TRIES_MAX = 100  # of one change: somebody else writes as often
LISTINGS_MAX = 3


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes: a leader in its epoch, and which process of it. `new_nonce`: 32 hex digits that are never again."""

    fence: Fence
    incarnation: str
    new_nonce: Callable[[], str]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a manifest, and entries of it that are to be in a page from now on."""

    manifest: Manifest
    first_page: Sequence[Entry] = ()


Decide = Callable[[Manifest], Awaitable[Change | None]]


class ManifestLog:
    """One partition's. One change at a time; `newest` is the newest version it has met, if any."""

    def __init__(self, store: ObjectStore, place: Place, author: Author) -> None:
        self.newest: Manifest | None = None
        self._store = store
        self._place = place
        self._author = author

    async def load(self) -> Manifest:
        """The newest there is, and Fenced if that is not of ours or of somebody before us.

        Raises TierDamaged, OtherVersion, and what a store does.
        """
        manifest = self.newest or await self._listed()
        for _ in range(LISTINGS_MAX):
            manifest = await self._following(manifest)
            if manifest.is_deleted or not await self._is_collected(manifest.version + 1):
                self._note(manifest)
                return manifest
            manifest = await self._listed()  # it lags behind by more than is kept
        raise StoreUnavailable(f"{self._place.manifests}: what is listed lags behind")

    def is_ours(self, manifest: Manifest) -> bool:
        """Whether this author has written it."""
        return manifest.fence == self._author.fence and manifest.incarnation == self._author.incarnation

    async def change(self, decide: Decide) -> Manifest:
        """Write what `decide` makes of the newest version, which it may be asked more than once; None: nothing is to
        change. Returns the newest version then. Raises as `load`; StoreUnavailable: it may have been written."""
        manifest = self.newest or await self.load()
        for _ in range(TRIES_MAX):
            change = await decide(manifest)
            if change is None:
                return manifest
            fresh = await self._with_pages(change)
            if await self._write(fresh):
                return fresh
            manifest = await self.load()  # somebody, we before perhaps, has written
        raise StoreUnavailable(f"{self._place.manifests}: others write all the time")

    async def page(self, page: Page) -> tuple[Entry, ...]:
        """Its entries. Raises TierDamaged, OtherVersion and what a store does: ObjectMissing, when it is doomed."""
        key = self._place.page(page)
        return decode_page(await self._store.get(key), page, key)

    async def entries(self, manifest: Manifest, behind: int = 0) -> list[Entry]:
        """Those that end behind that offset, in order; pages without any are not read. Raises as `page` does."""
        pages = [page for page in manifest.pages if page.end > behind]
        found = [*[one for page in pages for one in await self.page(page)], *manifest.entries]
        return [one for one in found if one.end > behind]

    async def collect(self) -> int:
        """Delete what is old; returns how many versions. Raises what a store does."""
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
            for one in members:  # the oldest first: where there is one, there are all behind it
                await self._store.delete(one.key)
                count += 1
        return count

    async def close(self) -> None:
        """For good: whoever stood still while versions were deleted, and finds its slot empty, is told that it was not.
        Of a manifest that says so."""
        newest = await self.load()
        assert newest.is_deleted
        for block in range(block_of(newest.version + 1) + 1):
            await self._put_once(self._place.collected(block))

    async def _may_go(self, block: int, newest: int, last: ObjectInfo) -> bool:
        """`last` is the last of the block that is there, as a listing says."""
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
        """One that is there: the last of a listing. The first version is looked for by its name."""
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
        """The last of those that are there without a gap."""
        while True:
            try:
                manifest = await self._read(manifest.version + 1)
            except ObjectMissing:
                return manifest

    async def _read(self, version: int) -> Manifest:
        key = self._place.manifest(version)
        return decode_manifest(await self._store.get(key), key)

    def _note(self, manifest: Manifest) -> None:
        """Raises Fenced."""
        ours, author = self._author.fence, self._author
        is_other = manifest.fence == ours and manifest.incarnation != author.incarnation
        if manifest.version and (manifest.fence > ours or is_other):
            raise Fenced(f"{self._place.prefix} was written to in {manifest.fence}, we are in {ours}")
        self.newest = manifest

    async def _with_pages(self, change: Change) -> Manifest:
        """Put what is to be in pages, and stamp what is to be written."""
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

    async def _put_page(self, entries: Sequence[Entry], generation: int) -> Page:
        page, content = encode_page(entries, generation)
        await self._store.put(self._place.page(page), Content.of(content))
        return page

    async def _write(self, manifest: Manifest) -> bool:
        """Whether that is the next version now. Raises Fenced."""
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
