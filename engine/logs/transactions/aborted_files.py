"""Aborted indexes as files beside their segments: docs/formats/aborted-index.md. Blocking: called on a worker."""

from collections.abc import Iterable
from contextlib import suppress

from engine.api import AbortedTransaction
from engine.errors import CorruptMessage, StorageError
from engine.files.filesystem import FileSystem, Unreadable, replace_small
from engine.logs.segments.footer import FooterDamaged, read_footer
from engine.logs.transactions.aborted import (
    SUFFIX,
    AbortedIndexDamaged,
    aborted_index_name,
    decode_aborted,
    encode_aborted,
)


def aborted_bases(filesystem: FileSystem, directory: str) -> list[int]:
    """Base offsets of the segments in a partition's directory that have an aborted index, ascending."""
    names = [name.removesuffix(SUFFIX) for name in filesystem.list_dir(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def write_aborted(
    filesystem: FileSystem, directory: str, base_offset: int, aborted: Iterable[AbortedTransaction]
) -> None:
    """Write the aborted index of a segment durably.

    It must be durable before a segment begins behind this one.
    """
    replace_small(filesystem, directory, aborted_index_name(base_offset), encode_aborted(aborted))


def aborted_of(filesystem: FileSystem, directory: str, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Read the aborted transactions of a finished segment that ends at `end_offset`.

    If the index is damaged, the footer of the segment is read instead; then `last_stable_offset` is 0. Raises
    FileNotFoundError without an index, and CorruptMessage if the footer does not help either: aborted records might be
    shown.
    """
    name = aborted_index_name(base_offset)
    file = filesystem.open(f"{directory}/{name}")
    try:
        return decode_aborted(file.read_at(0, file.size()), base_offset, end_offset)
    except (AbortedIndexDamaged, Unreadable) as damage:
        with suppress(FooterDamaged, StorageError):
            footer = read_footer(filesystem, directory, base_offset)
            found = [AbortedTransaction(*one, last_stable_offset=0) for one in footer.aborted]
            return [one for one in found if base_offset <= one.last_offset < end_offset]
        raise CorruptMessage(f"{directory}/{name}: {damage}") from damage
