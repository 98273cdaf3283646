"""The keys of the tier: docs/formats/tier.md. Numbers are padded, so that keys sort as numbers. Pure."""

from typing import NamedTuple, cast

from tiering.errors import TierDamaged
from tiering.manifest.manifest import Doomed, Intent, Page, SegmentEntry

VERSIONS_PER_BLOCK = 64
_OFFSET_DIGITS = 20


def block_of(version: int) -> int:
    """The block of a version; old versions are deleted in blocks."""
    return version // VERSIONS_PER_BLOCK


class Place(NamedTuple):
    """The place of a partition in the store; `root` ends with a slash, or is empty."""

    root: str
    cluster_id: str
    topic_id: bytes
    partition: int

    @property
    def prefix(self) -> str:
        """The prefix of all keys of the partition."""
        return f"{self.root}{self.cluster_id}/{self.topic_id.hex()}/{self.partition}/"

    @property
    def manifests(self) -> str:
        """The prefix of the keys of manifests."""
        return f"{self.prefix}manifest/"

    def manifest(self, version: int) -> str:
        return f"{self.manifests}{version:0{_OFFSET_DIGITS}d}"

    @property
    def collections(self) -> str:
        """The prefix of the keys of collected blocks."""
        return f"{self.prefix}collected/"

    def collected(self, block: int) -> str:
        return f"{self.collections}{block:010d}"

    def page(self, page: Page) -> str:
        return f"{self.prefix}page/{_name(page.first, page)}"

    def segment(self, segment: Intent | SegmentEntry) -> str:
        return f"{self.prefix}{_name(segment.base, segment)}"

    def doomed(self, doomed: Doomed) -> str:
        assert (doomed.segment is None) != (doomed.page is None)
        return self.page(doomed.page) if doomed.page is not None else self.segment(cast("Intent", doomed.segment))


def topic_id_of(key: str) -> bytes:
    """The topic id in the key of a segment."""
    return bytes.fromhex(key.split("/")[-3])


def version_of(key: str) -> int:
    """The version in the key of a manifest. Raises TierDamaged for a foreign object."""
    digits = key.rpartition("/")[2]
    if len(digits) != _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        raise TierDamaged(f"{key} is no manifest")
    return int(digits)


def _name(first: int, of: Page | Intent | SegmentEntry) -> str:
    return f"{first:020d}-{of.end:020d}-{of.generation:010d}-{of.digest}"
