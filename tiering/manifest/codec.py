"""Encoding of manifests and pages: docs/formats/tier.md. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from tiering.checked_json import FORMAT, checked, with_checksum
from tiering.errors import TierDamaged
from tiering.manifest.manifest import Manifest, Page, SegmentEntry, check

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGEST_SIZE_BYTES = 16


class _Manifest(Manifest, frozen=True, kw_only=True):
    v: int = FORMAT


class _Page(msgspec.Struct, kw_only=True):
    entries: tuple[SegmentEntry, ...]
    v: int = FORMAT


def encode_manifest(manifest: Manifest) -> bytes:
    return with_checksum(_Manifest(**{name: getattr(manifest, name) for name in Manifest.__struct_fields__}))


def decode_manifest(data: bytes, key: str) -> Manifest:
    """Decode a manifest. Raises TierDamaged and OtherVersion, with `key` in their texts."""
    found = checked(data, key, _Manifest)
    manifest = Manifest(**{name: getattr(found, name) for name in Manifest.__struct_fields__})
    try:
        check(manifest)
    except TierDamaged as error:
        raise TierDamaged(f"{key}: {error}") from error
    return manifest


def encode_page(entries: Sequence[SegmentEntry], generation: int) -> tuple[Page, bytes]:
    """Encode a page; returns its description for the manifest, and its content."""
    data = with_checksum(_Page(entries=tuple(entries)))
    digest, size_bytes = (
        blake2b(data, digest_size=_DIGEST_SIZE_BYTES).hexdigest(),
        sum(one.size_bytes for one in entries),
    )
    return Page(entries[0].base, entries[-1].end, generation, digest, len(entries), size_bytes), data


def decode_page(data: bytes, page: Page, key: str) -> tuple[SegmentEntry, ...]:
    """Decode a page. Raises as `decode_manifest`."""
    entries = checked(data, key, _Page).entries
    if encode_page(entries, page.generation)[0] != page:
        raise TierDamaged(f"{key} is not the page that was written")
    return entries
