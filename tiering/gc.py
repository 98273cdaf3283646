"""Garbage collection: objects without a use, from fenced writers, late requests and deleted topics.

The newest manifest of each partition decides. Only objects that are older than any possible request count, and only
objects that were found before are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tiering.errors import TierDamaged
from tiering.names import Place
from tiering.probe import probes

if TYPE_CHECKING:
    from tiering.inventory.inventory import Part
    from tiering.manifest.manifest import Manifest
    from tiering.object_store import ObjectInfo

LEFT_AFTER_MS = 86_400_000
_ID_DIGITS = 32


class Leftover(NamedTuple):
    """An object without a use, and the reason."""

    found: ObjectInfo
    reason: str


async def leftovers(part: Part, now_ms: int) -> list[Leftover]:
    """Find the objects of a cluster without a use.

    Raises StoreError, TierDamaged and OtherVersion: if a manifest cannot be read, nothing is reported.
    """
    found: list[Leftover] = []
    manifests = _Manifests(part)
    for prefix in (manifests.prefix, manifests.probes):
        after = ""
        while listed := await part.store.list_after(prefix, after):
            after = listed[-1].key
            for one in listed:
                reason = await manifests.reason(one.key)
                if reason is not None and now_ms - one.modified_ms >= LEFT_AFTER_MS:
                    found.append(Leftover(one, reason))
    return found


async def delete_leftovers(part: Part, found: list[Leftover]) -> int:
    """Delete objects that `leftovers` found, unless a manifest names them now; returns how many were deleted."""
    manifests, count = _Manifests(part), 0
    for one in found:
        if await manifests.reason(one.found.key) is not None:
            await part.store.delete(one.found.key)
            count += 1
    return count


class _Manifests:
    """The newest manifest of the partition of a key; one at a time is kept, because keys come in order."""

    def __init__(self, part: Part) -> None:
        self.prefix = f"{part.root}{part.cluster_id}/"
        self.probes = probes(part.root)
        self._part = part
        self._known: tuple[Place, _Known] | None = None

    async def reason(self, key: str) -> str | None:
        """Why an object has no use; None if it may have one, or belongs to no partition."""
        if key.startswith(self.probes):
            return "of a start that was killed"
        place = _place_of(self._part, key.removeprefix(self.prefix))
        if place is None:
            return None
        if self._known is None or self._known[0] != place:
            self._known = place, await _known(self._part, place)
        return self._known[1].reason(key)


class _Known:
    """The keys that the newest manifest of a partition names."""

    def __init__(self, place: Place, manifest: Manifest, paged: list[str]) -> None:
        self._place = place
        self._manifest = manifest
        self._keys = {*paged, *(place.segment(one) for one in manifest.entries)}
        self._keys |= {place.page(one) for one in manifest.pages} | {place.doomed(one) for one in manifest.doomed}
        if manifest.copying is not None:
            self._keys.add(place.segment(manifest.copying))

    def reason(self, key: str) -> str | None:
        """Why the object has no use; None if it may have one."""
        if key.startswith(self._place.collections) or key in self._keys:
            return None
        if key.startswith(self._place.manifests):
            is_old = self._manifest.is_deleted and key != self._place.manifest(self._manifest.version)
            return "of a deleted topic" if is_old else None
        return "of a deleted topic" if self._manifest.is_deleted else "no manifest names it"


async def _known(part: Part, place: Place) -> _Known:
    manifests = part.log_of(place)
    manifest = await manifests.load()
    paged = [place.segment(one) for page in manifest.pages for one in await manifests.page(page)]
    return _Known(place, manifest, paged)


def _place_of(part: Part, name: str) -> Place | None:
    """The partition of an object below the cluster's prefix, or None. Raises TierDamaged."""
    topic_id, _, rest = name.partition("/")
    number, slash, _ = rest.partition("/")
    if len(topic_id) != _ID_DIGITS or not slash:
        return None
    try:
        return part.place(bytes.fromhex(topic_id), int(number))
    except ValueError as error:
        raise TierDamaged(f"{part.root}{part.cluster_id}/{name} belongs to nothing here") from error
