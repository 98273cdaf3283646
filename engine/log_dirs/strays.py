"""Stray logs of all log dirs: logs that the metadata do not name are set aside, put back, and finally deleted.

A log is deleted at once only if a change of the metadata deleted its partition. Otherwise it becomes a stray: metadata
restored from an old snapshot must not cost the topics created since (RULES D3). `engine.log_dirs.stray_files` has the
files, and the order of steps that a crash may interrupt.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import trio

from engine.api import TopicIdPartition
from engine.commit.journal_format import Barrier, BarrierKind
from engine.errors import StorageError
from engine.files.filesystem import FileSystem
from engine.log_dirs.changes import Changes
from engine.log_dirs.homes import resolve_homes
from engine.log_dirs.layout import delete_dirs, directory_name, stored_topic_id
from engine.log_dirs.log_dir import LogDir, Resident
from engine.log_dirs.stray_files import (
    Stray,
    StrayMetadata,
    delete_strays,
    find_strays,
    forget_notes,
    note_strays,
    rename_back,
    rename_strays,
    write_running_times,
)
from engine.logs.recovery.checkpoints import PartitionKey, key_of
from engine.logs.recovery.recovery import LastKnown
from engine.logs.segments.sparse_index import Stored

CHECK_INTERVAL_S: Final = 60  # a crash costs no more running time than this
BACK: Final = "its log was a stray, and is back"
STUCK: Final = "its log is a stray that cannot be put back: see kafkawire log-dirs strays list"


class Fate(Enum):
    """The fate of a partition by the metadata."""

    NAMED = "named"  # this broker has, or may have, a replica
    MOVED = "moved"  # the topic is there, and this broker has no replica
    DELETED = "deleted"  # a change has deleted the topic
    UNNAMED = "unnamed"  # the topic is not there, and no change that is known has deleted it


FateOf = Callable[[bytes, int], Fate]  # the fate of a topic id and a partition number
TakeOpen = Callable[[Iterable[TopicIdPartition]], Mapping[LogDir, Sequence[Resident]]]


class _SortedNames(NamedTuple):
    """Directories of a log dir that the metadata do not name."""

    deleted: list[tuple[str, bytes]]
    unnamed: list[TopicIdPartition]


class Strays:
    """The strays of all log dirs.

    `take_open` closes partitions and removes them from the store. `may_age`: whether the broker has a metadata session,
    and can use the metadata.
    """

    def __init__(
        self,
        log_dirs: Sequence[LogDir],
        changes: Changes,
        take_open: TakeOpen,
        retention_ms: int,
        now_ms: Callable[[], int],
        on_problem: Callable[[str], None],
    ) -> None:
        self.may_age: Callable[[], bool] = lambda: False
        self._log_dirs = log_dirs
        self._changes = changes
        self._take_open = take_open
        self._retention_ms = retention_ms
        self._now_ms = now_ms
        self._on_problem = on_problem
        self._named: set[PartitionKey] = set()  # partitions that were to be put back
        self._given_up: set[PartitionKey] = set()
        self._unfinished: dict[PartitionKey, tuple[LogDir, StrayMetadata]] = {}  # renamed, but not in a checkpoint
        # The strays themselves: a disk that hangs keeps no log of another one from being set aside or put back (K21).
        self._changing = {one: trio.Lock() for one in log_dirs}

    def _all(self) -> Iterable[tuple[LogDir, Stray]]:
        online = [log_dir for log_dir in self._log_dirs if log_dir.disk.offline_reason is None]
        return [(log_dir, one) for log_dir in online for one in log_dir.strays.values()]

    async def apply_fates(self, fate_of: FateOf) -> None:
        """Delete, set aside or put back logs, as the metadata say; at a start, before logs are opened.

        Deleted partitions lose their logs, unnamed ones become strays, and strays that are named again come back. Log
        dirs that are or go offline are left alone. Raises StoreRefused if two log dirs have records of a partition.
        """
        async with self._changes.lock_all():
            for log_dir in self._log_dirs:
                with suppress(StorageError):
                    async with self._changing[log_dir]:
                        await self._settle(log_dir, fate_of)
            known = {one.key for _, one in self._all() if one.metadata is not None}
            await self._put_back([key for key in known if key is not None and fate_of(*key) is Fate.NAMED])
            await resolve_homes(self._log_dirs)

    async def _settle(self, log_dir: LogDir, fate_of: FateOf) -> None:
        disk, filesystem = log_dir.disk, log_dir.disk.filesystem
        log_dir.strays = {one.name: one for one in await disk.run(partial(find_strays, filesystem, disk.path))}
        keys = [(name, one.key) for name, one in log_dir.strays.items()]
        await self._delete(log_dir, [name for name, key in keys if key and fate_of(*key) is Fate.DELETED])
        judged = await disk.run(partial(_sort_by_fate, filesystem, disk.path, sorted(log_dir.names), fate_of))
        await disk.run(partial(delete_dirs, filesystem, disk.path, judged.deleted))
        stays = Fate.NAMED, Fate.UNNAMED
        await log_dir.forget([name for name, _ in judged.deleted], lambda *key: fate_of(*key) in stays)
        noted = [self._metadata_of(log_dir, one) for one in judged.unnamed]
        try:
            await disk.run(partial(note_strays, filesystem, disk.path, noted))
            await self._rename(log_dir, noted)
        except StorageError as error:
            self._on_problem(f"{disk.path} has logs that are to be strays: {error}")
            raise
        await log_dir.forget(list(map(directory_name, judged.unnamed)), lambda *key: fate_of(*key) is Fate.NAMED)

    async def _rename(self, log_dir: LogDir, noted: Sequence[StrayMetadata]) -> None:
        job = partial(rename_strays, log_dir.disk.filesystem, log_dir.disk.path, noted)
        found = await log_dir.disk.run(job)
        log_dir.strays |= {one.name: one for one in found}
        for one in found:
            self._on_problem(f"{log_dir.disk.path}/{one.name} is a stray: topic {one.topic} is not in the metadata")

    def _metadata_of(self, log_dir: LogDir, partition: TopicIdPartition) -> StrayMetadata:
        """The metadata of a log that this process has not opened."""
        name = directory_name(partition)
        known = log_dir.commit_log.last_known(key_of(partition), name, Stored(), has_others=False)
        needs_scan = not known.is_clean
        return StrayMetadata(partition, self._now_ms(), known.checkpoint, needs_scan, may_truncate=known.may_truncate)

    async def set_aside(self, partitions: Collection[TopicIdPartition]) -> None:
        """Make strays of open logs that the metadata do not name any more, and that no change has deleted.

        A closed log stays as it is until the next start.
        """
        async with self._changes.lock(partitions):
            self._named.difference_update(map(key_of, partitions))
            for log_dir, residents in self._take_open(partitions).items():
                try:
                    async with self._changing[log_dir]:
                        await self._set_aside(log_dir, residents)
                except StorageError as error:
                    self._on_problem(f"{log_dir.disk.path} has logs that are to be strays: {error}")

    async def _set_aside(self, log_dir: LogDir, residents: Sequence[Resident]) -> None:
        """Set aside the logs of one log dir.

        A flush makes them complete, as the replay of the journal does at a start. A barrier keeps later replays from
        them (RULES J2).
        """
        disk, commit_log, now_ms = log_dir.disk, log_dir.commit_log, self._now_ms()
        partitions = [one.partition for one in residents]
        async with commit_log.alone():
            await commit_log.flusher.flush([one.log for one in residents])
            points = commit_log.advance_points()
            noted = [StrayMetadata(one, now_ms, points[key_of(one)]) for one in partitions]
            await disk.run(partial(note_strays, disk.filesystem, disk.path, noted))
            with suppress(StorageError):  # without space for it, the stray's entry overrides a replay of the frames
                kind = BarrierKind.DELETED
                await commit_log.announce([Barrier(one.topic_id, one.partition, kind) for one in partitions])
            log_dir.release(partitions)
            await self._rename(log_dir, noted)
        await log_dir.abandon(partitions)
        await log_dir.close_logs([one.log for one in residents])

    async def put_back(self, partitions: Collection[TopicIdPartition]) -> Mapping[TopicIdPartition, str]:
        """Put back the strays of partitions that the metadata name; returns why partitions are not to be opened now.

        If a stray cannot be put back, its partition stays closed: an empty log would hide the records of the stray.
        """
        known = {one.key for _, one in self._all()} | self._unfinished.keys()
        with_strays = [one for one in partitions if key_of(one) in known and key_of(one) not in self._given_up]
        if not with_strays:
            return {}
        async with self._changes.lock(with_strays):
            back = await self._put_back([key_of(one) for one in with_strays])
        return {
            one: BACK if key_of(one) in back else STUCK
            for one in with_strays
            if key_of(one) in back or self._is_stuck(one)
        }

    def home(self, partition: TopicIdPartition) -> LogDir | None:
        """The log dir of the stray that would be put back."""
        newest = self._newest(key_of(partition))
        return newest[0] if newest is not None else None

    def _newest(self, key: PartitionKey) -> tuple[LogDir, Stray] | None:
        """The newest stray of the partition. Older ones, and those without metadata, are not put back."""
        strays = [one for one in self._all() if one[1].metadata is not None and one[1].key == key]
        return max(strays, key=lambda one: one[1].at_ms or 0, default=None)

    def had(self, key: PartitionKey) -> bool:
        """Whether there is a stray of the partition."""
        return any(one.key == key for _, one in self._all())

    def give_up(self, key: PartitionKey) -> None:
        """Note an unclean election, which gave up this broker's records: a new log begins, and the stray stays."""
        self._given_up.add(key)

    def _is_stuck(self, partition: TopicIdPartition) -> bool:
        name = directory_name(partition)
        return not any(name in one.names for one in self._log_dirs if one.disk.offline_reason is None)

    async def _put_back(self, keys: Collection[PartitionKey]) -> Collection[PartitionKey]:
        """The keys of the partitions whose logs are back."""
        self._named.update(keys)
        found: dict[LogDir, list[Stray]] = {self._unfinished[key][0]: [] for key in keys if key in self._unfinished}
        for key in keys:
            newest = self._newest(key)
            if newest is not None and key not in self._unfinished:
                log_dir, stray = newest
                assert stray.metadata is not None
                name = directory_name(stray.metadata.partition)
                if any(other.may_hold(name) for other in self._log_dirs):
                    self._on_problem(f"{log_dir.disk.path}/{stray.name} stays a stray: {name} is, or may be, there")
                else:
                    found.setdefault(log_dir, []).append(stray)
        before = {key for key in keys if key in self._unfinished}
        for log_dir, strays in found.items():
            with suppress(StorageError):
                async with self._changing[log_dir]:
                    await self._put_back_in(log_dir, [one for one in strays if one.name in log_dir.strays])
        renamed = {one.key for strays in found.values() for one in strays}
        return {key for key in keys if key in before | renamed and key not in self._unfinished and not self.had(key)}

    async def _put_back_in(self, log_dir: LogDir, strays: Sequence[Stray]) -> None:
        """Put back strays, and repeat the checkpoint for those for which it failed before."""
        disk, filesystem = log_dir.disk, log_dir.disk.filesystem
        await disk.run(partial(rename_back, filesystem, disk.path, strays))
        for one in strays:
            metadata = one.metadata
            assert metadata is not None
            key, name = key_of(metadata.partition), directory_name(metadata.partition)
            known = LastKnown(not metadata.needs_scan, metadata.point, may_truncate=metadata.may_truncate)
            log_dir.commit_log.take_back(key, name, known)
            log_dir.names.add(name)
            del log_dir.strays[one.name]
            self._unfinished[key] = log_dir, metadata
        await log_dir.commit_log.checkpoint()
        done = {key: metadata for key, (where, metadata) in self._unfinished.items() if where is log_dir}
        await disk.run(partial(forget_notes, filesystem, disk.path, list(done.values())))
        for key in done:
            del self._unfinished[key]

    async def _delete(self, log_dir: LogDir, names: Sequence[str]) -> None:
        await log_dir.disk.run(partial(delete_strays, log_dir.disk.filesystem, log_dir.disk.path, names))
        for name in names:
            del log_dir.strays[name]

    async def serve(self) -> None:
        """Count running time, and delete strays after their retention, until cancelled."""
        before_s = trio.current_time()
        while True:
            await trio.sleep(CHECK_INTERVAL_S)
            passed_ms = round((trio.current_time() - before_s) * 1000)
            before_s = trio.current_time()
            if self.may_age():
                await self._age(passed_ms)

    async def _age(self, passed_ms: int) -> None:
        """Add running time, and delete what is due. A disk that hangs does not block the others (RULES K21)."""
        for log_dir in {log_dir: None for log_dir, _ in self._all()}:
            aged = {name: one._replace(kept_ms=one.kept_ms + passed_ms) for name, one in log_dir.strays.items()}
            log_dir.strays = aged
            with suppress(StorageError):
                if any(map(self._is_due, aged.values())):
                    await self._delete_due(log_dir)
                await self._write_running_times(log_dir)

    async def _delete_due(self, log_dir: LogDir) -> None:
        async with self._changing[log_dir]:
            due = [name for name, one in log_dir.strays.items() if self._is_due(one)]
            for name in due:
                self._on_problem(f"{log_dir.disk.path}/{name} is deleted: log.dir.stray.retention.ms is over")
            await self._delete(log_dir, due)

    def _is_due(self, stray: Stray) -> bool:
        """Whether the retention of a stray is over; never if the metadata name it, and only its directory is
        missing."""
        if stray.metadata is None or stray.kept_ms < self._retention_ms:
            return False
        return stray.key not in self._named or not self._is_stuck(stray.metadata.partition)

    async def _write_running_times(self, log_dir: LogDir) -> None:
        disk, times = log_dir.disk, running_times(log_dir)
        await disk.run(partial(write_running_times, disk.filesystem, disk.path, times))


def running_times(log_dir: LogDir) -> Mapping[str, int]:
    """The running times of a log dir's strays by name, in ms."""
    return {name: one.kept_ms for name, one in log_dir.strays.items()}


def _sort_by_fate(filesystem: FileSystem, path: str, names: Sequence[str], fate_of: FateOf) -> _SortedNames:
    """Sort partition directories by the fate of their partitions.

    A directory without a topic id stays: it may be about to be created, or be damaged.
    """
    judged = _SortedNames([], [])
    for name in names:
        with suppress(StorageError):
            topic_id, (topic, _, number) = stored_topic_id(filesystem, f"{path}/{name}"), name.rpartition("-")
            if topic_id is None:
                continue
            fate = fate_of(topic_id, int(number))
            if fate is Fate.UNNAMED:
                judged.unnamed.append(TopicIdPartition(topic_id, topic, int(number)))
            elif fate is not Fate.NAMED:
                judged.deleted.append((name, topic_id))
    return judged
