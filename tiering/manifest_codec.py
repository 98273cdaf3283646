"""Manifests and pages as bytes: docs/formats/tier.md. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

import msgspec
from crc32c import crc32c

from tiering.errors import OtherVersion, TierDamaged
from tiering.manifest import Entry, Manifest, Page, check

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT = 1
_DIGEST_SIZE_BYTES = 16
_CRC_LINE = b"crc32c=%08x\n"

T = TypeVar("T")


class _Version(msgspec.Struct):
    v: int


class _Manifest(Manifest, frozen=True, kw_only=True):
    v: int = FORMAT


class _Page(msgspec.Struct, kw_only=True):
    entries: tuple[Entry, ...]
    v: int = FORMAT


def encode_manifest(manifest: Manifest) -> bytes:
    return _with_checksum(_Manifest(**{name: getattr(manifest, name) for name in Manifest.__struct_fields__}))


def decode_manifest(data: bytes, key: str) -> Manifest:
    """Raises TierDamaged and OtherVersion, naming `key`."""
    found = _checked(data, key, _Manifest)
    manifest = Manifest(**{name: getattr(found, name) for name in Manifest.__struct_fields__})
    try:
        check(manifest)
    except TierDamaged as error:
        raise TierDamaged(f"{key}: {error}") from error
    return manifest


def encode_page(entries: Sequence[Entry], generation: int) -> tuple[Page, bytes]:
    """What a manifest says of it, and its content."""
    data = _with_checksum(_Page(entries=tuple(entries)))
    digest, size_bytes = (
        blake2b(data, digest_size=_DIGEST_SIZE_BYTES).hexdigest(),
        sum(one.size_bytes for one in entries),
    )
    return Page(entries[0].base, entries[-1].end, generation, digest, len(entries), size_bytes), data


def decode_page(data: bytes, page: Page, key: str) -> tuple[Entry, ...]:
    """Raises as `decode_manifest` does."""
    entries = _checked(data, key, _Page).entries
    if encode_page(entries, page.generation)[0] != page:
        raise TierDamaged(f"{key} is not the page that was written")
    return entries


def _with_checksum(value: msgspec.Struct) -> bytes:
    line = msgspec.json.encode(value) + b"\n"
    return line + _CRC_LINE % crc32c(line)


def _checked(data: bytes, key: str, kind: type[T]) -> T:
    line, _, checksum = data.rpartition(b"crc32c=")
    if not line or b"crc32c=" + checksum != _CRC_LINE % crc32c(line):
        raise TierDamaged(f"{key} fails its CRC")
    try:
        version = msgspec.json.decode(line, type=_Version).v
        if version != FORMAT:
            raise OtherVersion(f"{key} has format {version}: it was written by another version of Kafkawire")
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise TierDamaged(f"{key} makes no sense: {error}") from error
