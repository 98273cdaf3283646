"""The footer of a sealed segment, and its file: docs/formats/footer.md. Pure, except for reading the file.

A `Tally` counts and digests the batches of a segment, during appends or a scan; a `Footer` is the result. Two segments
with the same digest hold the same batches (RULES S2).
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from engine.api import NO_OFFSET, NO_TIMESTAMP_MS, TopicIdPartition
from engine.batches.batch import BatchHeader
from engine.errors import StorageError
from engine.files.checked_text import body_of, with_crc
from engine.files.filesystem import FileSystem, Unreadable, read_small

SUFFIX = ".footer"
DIGEST_SIZE_BYTES = 32
_VERSION_LINE = "version=2"
_OLDER_VERSION_LINE = "version=1"  # without the least timestamp
_MIN_TIMESTAMP = "min.timestamp.ms"
_LATEST_MS = 2**63 - 1
_NONE = "-"
_START = Struct(">qiibI")  # first fields of a header: base offset, length, leader epoch, magic, CRC
_INTEGERS = tuple(  # fields of a Footer, and their names in the file
    (field, field.replace("_", "."))
    for field in (
        "generation",
        "size_bytes",
        "batches",
        "records",
        "first_offset",
        "last_offset",
        "first_timestamp_ms",
        "max_timestamp_ms",
    )
)


class FooterDamaged(Exception):
    """The footer file is missing, or its content differs from what was written."""


class Tally:
    """Counts, timestamps and digest of the batches of a segment, which are added in their order."""

    __slots__ = (
        "_digest",
        "batches",
        "first_offset",
        "first_timestamp_ms",
        "last_offset",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "records",
    )

    def __init__(self) -> None:
        self.batches = self.records = 0
        self.first_offset = self.last_offset = NO_OFFSET
        self.first_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP_MS
        self.min_timestamp_ms = _LATEST_MS  # with LogAppendTime; other batches set NO_TIMESTAMP_MS
        self._digest = blake2b(digest_size=DIGEST_SIZE_BYTES)

    def add(self, header: BatchHeader) -> None:
        """Add the next batch."""
        if not self.batches:
            self.first_offset, self.first_timestamp_ms = header.base_offset, header.max_timestamp_ms
        self.batches += 1
        self.records += header.record_count
        self.last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp_ms
        least_ms = header.max_timestamp_ms if header.is_log_append_time else NO_TIMESTAMP_MS
        if least_ms < self.min_timestamp_ms:
            self.min_timestamp_ms = least_ms
        self._digest.update(_START.pack(*header[:5]))

    def footer(
        self,
        partition: TopicIdPartition,
        base_offset: int,
        size_bytes: int,
        generation: int = 0,
        aborted: Sequence[tuple[int, int, int]] = (),
        *,
        has_min_timestamp: bool = True,
    ) -> "Footer":
        """The footer of a segment that holds exactly the batches of this tally."""
        least_ms = NO_TIMESTAMP_MS if self.min_timestamp_ms == _LATEST_MS else self.min_timestamp_ms
        return Footer(
            partition.topic_id,
            partition.partition,
            base_offset,
            generation,
            size_bytes,
            self.batches,
            self.records,
            self.first_offset,
            self.last_offset,
            self.first_timestamp_ms,
            self.max_timestamp_ms,
            self._digest.digest(),
            tuple(aborted),
            least_ms if has_min_timestamp else None,
        )

    def is_of(self, footer: "Footer", partition: TopicIdPartition, base_offset: int, size_bytes: int) -> bool:
        """Whether these batches are those of the sealed segment of `footer`. Fields that do not follow from them are
        believed."""
        beside = footer.generation, footer.aborted
        has_min_timestamp = footer.min_timestamp_ms is not None
        return self.footer(partition, base_offset, size_bytes, *beside, has_min_timestamp=has_min_timestamp) == footer


class Footer(NamedTuple):
    """The footer of a sealed segment.

    `aborted`: producer id, first and last offset of each aborted transaction that touches the segment, in the order of
    their ends. `min_timestamp_ms`: the least timestamp, if all batches have LogAppendTime; -1 otherwise, and without
    batches; None in a footer of version 1.
    """

    topic_id: bytes
    partition: int
    base_offset: int
    generation: int
    size_bytes: int
    batches: int
    records: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    digest: bytes
    aborted: tuple[tuple[int, int, int], ...] = ()
    min_timestamp_ms: int | None = NO_TIMESTAMP_MS


def footer_name(base_offset: int) -> str:
    """The file name of the footer of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{SUFFIX}"


def encode(footer: Footer) -> bytes:
    least_ms = footer.min_timestamp_ms
    lines = [
        _OLDER_VERSION_LINE if least_ms is None else _VERSION_LINE,
        f"topic.id={footer.topic_id.hex()}",
        f"partition={footer.partition}",
        f"base.offset={footer.base_offset}",
        *(f"{name}={getattr(footer, field)}" for field, name in _INTEGERS),
        *([] if least_ms is None else [f"{_MIN_TIMESTAMP}={least_ms}"]),
        f"digest={footer.digest.hex()}",
        "aborted=" + (",".join([":".join(map(str, one)) for one in footer.aborted]) or _NONE),
    ]
    body = "\n".join(lines).encode() + b"\n"
    return with_crc(body)


def decode(content: bytes, path: str) -> Footer:
    """Decode a footer. Raises FooterDamaged, or StorageError, with `path` in its text, if another version wrote it."""
    body = body_of(content)
    if body is None:
        raise FooterDamaged(f"{path} fails its CRC")
    lines = body.decode().splitlines()
    if lines[0] not in (_VERSION_LINE, _OLDER_VERSION_LINE):
        raise StorageError(f"{path} was written by another version")
    values = dict(line.split("=", 1) for line in lines)
    owner = bytes.fromhex(values["topic.id"]), int(values["partition"]), int(values["base.offset"])
    numbers = [int(values[name]) for _, name in _INTEGERS]
    listed = [] if values["aborted"] == _NONE else values["aborted"].split(",")
    aborted = [tuple(map(int, one.split(":"))) for one in listed]
    least_ms = int(values[_MIN_TIMESTAMP]) if lines[0] == _VERSION_LINE else None
    return Footer._make([*owner, *numbers, bytes.fromhex(values["digest"]), tuple(aborted), least_ms])


def read_footer(filesystem: FileSystem, directory: str, base_offset: int) -> Footer:
    """Read the footer of a segment in a partition's directory. Raises FooterDamaged, also without a file;
    StorageError."""
    path = f"{directory}/{footer_name(base_offset)}"
    try:
        content = read_small(filesystem, path)
    except Unreadable as error:
        raise FooterDamaged(f"{path}: {error}") from error
    return decode(content or b"", path)
