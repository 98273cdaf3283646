"""Staging of batches until the driver relays them: in the message at the end of a task, or in a file beside it.

A file is `<location>/kafkawire-spark/<query>/<batch>/<task>-<attempt>-<random>`. Each attempt has its own file, and
only files of messages that Spark has accepted are read. A file is written under another name and then renamed. Its size
and CRC are in the message, so damage is noticed. Files need not survive a power failure, after which tasks run again.
They are deleted after their micro-batch is recorded as written, or when they reach the maximal age.

The bytes: a mark of four bytes, then frames. A frame has the index of its place in the message, the number of records
of its batch, and the size of the batch in bytes, each as big-endian uint32, and then the batch.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from crc32c import crc32c
from pyarrow import fs

from spark_connectors.locations import opened
from spark_connectors.sink.errors import StagingLost
from spark_connectors.sink.relay import Frame
from spark_connectors.wire import TopicPartition

INLINE_MAX_BYTES: Final = 1 << 20
MARK: Final = b"KWS1"
_FRAME_FORMAT: Final = ">III"
_FOLDER: Final = "kafkawire-spark"  # files outside of it are never touched


@dataclass(frozen=True)
class Task:
    """An attempt of a task. `batch_id` belongs to a stream; None: a batch job, and `query` is a unique name."""

    query: str
    batch_id: int | None
    task: int
    attempt: int


@dataclass(frozen=True)
class Staged:
    """Staged batches of an attempt: in `data`, or in the file `path` below `location`."""

    by: Task
    places: tuple[TopicPartition, ...]
    rows: int
    size_bytes: int
    crc: int
    data: bytes | None
    location: str = ""
    path: str = ""


class StagingWriter:
    """Writer of one attempt. After `finish` or `discard`, it cannot be used any more."""

    def __init__(self, by: Task, location: str, inline_max_bytes: int = INLINE_MAX_BYTES) -> None:
        self._by = by
        self._location = location
        self._inline_max_bytes = inline_max_bytes
        self._waiting: list[bytes | bytearray] = [MARK]
        self._file: Any = None
        self._path = ""
        self._places: dict[TopicPartition, int] = {}
        self._rows = 0
        self._size_bytes = len(MARK)
        self._crc: int = crc32c(MARK)

    def add(self, frame: Frame) -> None:
        """Add a frame. Raises OSError."""
        index = self._places.setdefault(frame.place, len(self._places))
        for part in (struct.pack(_FRAME_FORMAT, index, frame.records, len(frame.batch)), frame.batch):
            self._crc = crc32c(part, self._crc)
            self._size_bytes += len(part)
            self._waiting.append(part)
        self._rows += frame.records
        if self._file is None and self._size_bytes > self._inline_max_bytes:
            self._open()
        if self._file is not None:
            self._write()

    def finish(self) -> Staged:
        """Complete the staging. Raises OSError."""
        data = None if self._file is not None else b"".join(self._waiting)
        if self._file is not None:
            self._file.close()
            system, _ = opened(self._location)
            system.move(self._part, self._path)
        places = tuple(self._places)
        return Staged(self._by, places, self._rows, self._size_bytes, self._crc, data, self._location, self._path)

    def discard(self) -> None:
        """Delete the unfinished file, if there is one."""
        if self._file is None:
            return
        with suppress(OSError):
            self._file.close()
            system, _ = opened(self._location)
            system.delete_file(self._part)

    @property
    def _part(self) -> str:
        return f"{self._path}.part"

    def _open(self) -> None:
        area = _Area(self._location)
        folder = area.folder_of(self._by)
        area.system.create_dir(folder, recursive=True)
        self._path = f"{folder}/{self._by.task}-{self._by.attempt}-{uuid.uuid4().hex[:8]}"
        self._file = area.system.open_output_stream(self._part)

    def _write(self) -> None:
        for part in self._waiting:
            self._file.write(part)
        self._waiting.clear()


def frames_of(staged: Staged) -> Iterator[Frame]:
    """Frames in the order in which they were added. Raises StagingLost; a wrong CRC is noticed at the end only."""
    by = staged.by
    subject = f"the file that task {by.task} of {by.query} has staged{f', {staged.path},' if staged.path else ''}"
    try:
        with _opened(staged) as source:
            yield from _frames(source, staged, subject)
    except OSError as error:
        raise StagingLost(
            f"{subject} cannot be read: {error}. The option stagingLocation must be a place that the driver and all "
            f"executors share"
        ) from error


def _opened(staged: Staged) -> Any:
    if staged.data is not None:
        return pa.BufferReader(staged.data)
    system, _ = opened(staged.location)
    return system.open_input_stream(staged.path)


def _frames(source: Any, staged: Staged, subject: str) -> Iterator[Frame]:
    left_bytes, crc, rows = staged.size_bytes, 0, 0

    def read(size_bytes: int) -> bytes:
        nonlocal left_bytes, crc
        data: bytes = source.read(size_bytes) if size_bytes <= left_bytes else b""
        if len(data) < size_bytes:
            raise StagingLost(f"{subject} has changed: it ends too early")
        left_bytes -= size_bytes
        crc = crc32c(data, crc)
        return data

    if read(len(MARK)) != MARK:
        raise StagingLost(f"{subject} is not of this version of the sink")
    while left_bytes:
        index, records, size_bytes = struct.unpack(_FRAME_FORMAT, read(struct.calcsize(_FRAME_FORMAT)))
        batch = read(size_bytes)
        if index >= len(staged.places):
            break
        rows += records
        yield Frame(staged.places[index], batch, records)
    if left_bytes or source.read(1) or crc != staged.crc or rows != staged.rows:
        raise StagingLost(f"{subject} has changed: its CRC, its size or its rows differ")


class _Area:
    """Files of the sink below a location."""

    def __init__(self, location: str) -> None:
        self.system, root = opened(location)
        self.root = f"{root.rstrip('/')}/{_FOLDER}"

    def query(self, query: str) -> str:
        return f"{self.root}/{query}"

    def folder_of(self, by: Task) -> str:
        return f"{self.query(by.query)}/{0 if by.batch_id is None else by.batch_id}"

    def found(self, path: str, *, deep: bool = False) -> Sequence[Any]:
        every: Sequence[Any] = self.system.get_file_info(fs.FileSelector(path, recursive=deep, allow_not_found=True))
        return every

    def delete(self, path: str) -> None:
        """Delete a directory. Errors are ignored, because another process may delete it too."""
        with suppress(OSError):
            self.system.delete_dir(path)


def delete_written(location: str, query: str, batch_id: int | None) -> None:
    """Delete files of micro-batches up to this one, which are recorded as written; None: all of the query.

    Files that other attempts leave later are deleted by their age.
    """
    area = _Area(location)
    if batch_id is None:
        area.delete(area.query(query))
        return
    for one in area.found(area.query(query)):
        if one.base_name.isdecimal() and int(one.base_name) <= batch_id:
            area.delete(one.path)


def delete_aged(location: str, age_s: float, now_s: float) -> None:
    """Delete queries without new files for that long; `now_s` is since 1970."""
    area = _Area(location)
    paths = {one.path.removeprefix(f"{area.root}/"): one.mtime_ns for one in area.found(area.root, deep=True)}
    for query in aged(paths, int((now_s - age_s) * 1e9)):
        area.delete(area.query(query))


def aged(times_ns: Mapping[str, int | None], before_ns: int) -> list[str]:
    """Queries whose newest file is older, by the paths and times of their files. Folders of object stores have no time:
    a folder alone may be in use.
    """
    newest_ns: dict[str, int] = {}
    for path, time_ns in times_ns.items():
        if time_ns is not None:
            query = path.partition("/")[0]
            newest_ns[query] = max(newest_ns.get(query, 0), time_ns)
    return [query for query, time_ns in newest_ns.items() if time_ns < before_ns]
