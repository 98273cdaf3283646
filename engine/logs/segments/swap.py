"""The swap of compaction: a compacted segment replaces the segments it was made of, in steps that survive a crash.

File operations for a worker, and their completion at the open of a log: docs/formats/compaction.md. As in Kafka, a
`.cleaned` file is ignored and a `.swap` file counts. The caller writes the checkpoint first (RULES J2).
"""

from collections.abc import Sequence
from contextlib import suppress

from engine.api import AbortedTransaction
from engine.errors import CorruptMessage
from engine.files.filesystem import FileSystem, Unreadable, replace_small
from engine.logs.segments.footer import footer_name
from engine.logs.segments.segment import SUFFIX, segment_bases, segment_name, walk_headers
from engine.logs.segments.set_aside import set_aside
from engine.logs.transactions.aborted import SUFFIX as ABORTED_SUFFIX
from engine.logs.transactions.aborted import aborted_index_name, encode_aborted

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def cleaned_path(directory: str, base_offset: int) -> str:
    """The path of a compacted segment that is being written."""
    return f"{directory}/{segment_name(base_offset)}{CLEANED_SUFFIX}"


def drop_cleaned(filesystem: FileSystem, directory: str, base_offset: int) -> None:
    """Delete a compacted segment that is not needed, if it exists."""
    path = cleaned_path(directory, base_offset)
    if filesystem.exists(path):
        filesystem.unlink(path)


def swap_in(
    filesystem: FileSystem, directory: str, base_offsets: Sequence[int], aborted: Sequence[AbortedTransaction] = ()
) -> list[str]:
    """Replace segments by their compacted segment, which is synced; returns the paths of the old ones, set aside.

    `aborted` is the content of the new segment's aborted index. It takes effect with the segment, because each entry
    goes with its marker.
    """
    name = segment_name(base_offsets[0])
    indexed = [base for base in base_offsets if filesystem.exists(f"{directory}/{aborted_index_name(base)}")]
    if indexed or aborted:
        replace_small(
            filesystem, directory, aborted_index_name(base_offsets[0]) + CLEANED_SUFFIX, encode_aborted(aborted)
        )
    filesystem.rename(cleaned_path(directory, base_offsets[0]), f"{directory}/{name}{SWAP_SUFFIX}")
    filesystem.sync_dir(directory)
    return _finish(filesystem, directory, base_offsets)


def _finish(filesystem: FileSystem, directory: str, base_offsets: Sequence[int]) -> list[str]:
    """Finish a swap, from whichever step a crash left it at; returns the paths of the old segments, set aside.

    The old segments go before the name of the first one is taken: at no time are both present, or neither.
    """
    path = f"{directory}/{segment_name(base_offsets[0])}"
    old = [base for base in base_offsets if filesystem.exists(f"{directory}/{segment_name(base)}")]
    with suppress(FileNotFoundError):  # it would count as the footer of the new segment
        filesystem.unlink(f"{directory}/{footer_name(base_offsets[0])}")
    names = set_aside(filesystem, directory, old)
    index_path = f"{directory}/{aborted_index_name(base_offsets[0])}"
    if filesystem.exists(index_path + CLEANED_SUFFIX):
        filesystem.rename(index_path + CLEANED_SUFFIX, index_path)
        filesystem.sync_dir(directory)
    filesystem.rename(f"{path}{SWAP_SUFFIX}", path)
    filesystem.sync_dir(directory)
    return names


def finish_swaps(filesystem: FileSystem, directory: str) -> None:
    """Finish the swaps that a crash interrupted: delete `.cleaned` files, and complete those with a `.swap` file."""
    names = filesystem.list_dir(directory)
    swapped = {name.partition(".")[0] for name in names if name.endswith(SUFFIX + SWAP_SUFFIX)}
    for name in names:
        is_index = name.endswith(ABORTED_SUFFIX + CLEANED_SUFFIX) and name.partition(".")[0] not in swapped
        if name.endswith(SUFFIX + CLEANED_SUFFIX) or is_index:
            filesystem.unlink(f"{directory}/{name}")
    for name in names:
        if name.endswith(SUFFIX + SWAP_SUFFIX):
            base_offset = int(name.removesuffix(SUFFIX + SWAP_SUFFIX))
            file = filesystem.open(f"{directory}/{name}")
            end_offset = base_offset + 1
            with suppress(CorruptMessage, Unreadable):  # damage, which the scan of the log will find
                for at in walk_headers(file, 0, file.size()):
                    end_offset = at.header.next_offset
            others = [base for base in segment_bases(filesystem, directory) if base_offset < base < end_offset]
            _finish(filesystem, directory, [base_offset, *others])
