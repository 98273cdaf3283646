"""Opening, role changes and deletion of the partitions of a store, in each log dir separately.

A change of many partitions is split by log dir before any partition is claimed, so a disk that hangs holds no claim on
a partition of another disk. The log dir of a new partition is chosen first, and stays chosen until the partition is
opened or its opening failed. A role that a newer one has replaced in the meantime is not taken (RULES K34).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import trio

from engine import descriptions
from engine.errors import EngineError, NotLeaderOrFollower, StorageError, UnknownPartition
from engine.log_dirs.changes import Changes
from engine.log_dirs.homes import home_of
from engine.log_dirs.layout import directory_name
from engine.log_dirs.log_dir import LogDir
from engine.log_dirs.openings import Known, delete_logs, open_logs, split_into_jobs
from engine.logs.log import Log
from engine.logs.recently_used import SegmentCaches
from engine.logs.recovery.recovery import LastKnown
from engine.options import StoreDeps
from engine.partitions.opening import opening_of
from engine.partitions.partition import Partition
from engine.partitions.suspension import take_role
from engine.reopening import release_closed
from engine.roles import Role, TopicIdPartition

BATCH_MAX = 256  # partitions opened or deleted under one claim, so that other changes get in between

Newest = Callable[[Role], Role | None]


def wanted_role(role: Role) -> Role | None:
    return role


class PartitionChanges:
    """Changes of the `partitions` of one store over `log_dirs`. `claims`: of the partitions that are being changed."""

    def __init__(
        self,
        partitions: dict[TopicIdPartition, Partition],
        log_dirs: Sequence[LogDir],
        claims: Changes,
        caches: SegmentCaches,
        deps: StoreDeps,
    ) -> None:
        self._partitions = partitions
        self._dirs = log_dirs
        self._claims = claims
        self._caches = caches
        self._deps = deps
        self._coming: dict[LogDir, dict[str, set[TopicIdPartition]]] = {
            one: {} for one in log_dirs
        }  # by directory name
        self.stray_home: Callable[[TopicIdPartition], LogDir | None] = lambda _: None  # where a stray of it is
        self.is_closed = False  # the store is: nothing is opened or deleted any more

    # Where a partition lies

    def home(self, partition: TopicIdPartition, leader_epoch: int) -> LogDir:
        """The log dir of the partition. For a new one it is chosen, and remembered: the same for all partitions of one
        directory name. Raises StorageError."""
        if (known := self.known_home(partition)) is not None:
            return known
        name = directory_name(partition)
        same = (one for one, names in self._coming.items() if name in names)
        chosen = next(same, None) or self.stray_home(partition)
        chosen = chosen or home_of(self._dirs, name, leader_epoch, self._coming)
        self._coming[chosen].setdefault(name, set()).add(partition)
        return chosen

    def known_home(self, partition: TopicIdPartition) -> LogDir | None:
        """The log dir of an opened partition, or the chosen one of a new partition; None: neither."""
        if (found := self._partitions.get(partition)) is not None:
            return found.log_dir
        name = directory_name(partition)
        return next((one for one, names in self._coming.items() if partition in names.get(name, ())), None)

    def serving_home(self, partition: TopicIdPartition) -> LogDir | None:
        """The log dir as in `known_home`, but None if the log is closed for good."""
        found = self._partitions.get(partition)
        return None if found is not None and found.is_closed else self.known_home(partition)

    def has(self, partition: TopicIdPartition) -> bool:
        """Whether it was opened, and not deleted."""
        return partition in self._partitions

    def forget_home(self, partition: TopicIdPartition) -> None:
        """Forget the chosen log dir: the partition was created, or will not be."""
        name = directory_name(partition)
        for names in self._coming.values():
            if name in names:
                names[name].discard(partition)
                if not names[name]:
                    del names[name]

    # Opening

    async def open(
        self, wanted: Sequence[Role], again: Collection[TopicIdPartition] = (), newest: Newest = wanted_role
    ) -> list[Partition | EngineError]:
        """Open these partitions in their roles; the errors are returned in their places.

        `again`: partitions that are opened again if they are closed. `newest`: called at the moment when a role is
        taken, returns the role to take, or None if another role of the partition has replaced it by then.
        """
        failed: dict[TopicIdPartition, EngineError] = {}
        by_log_dir: defaultdict[LogDir, list[Role]] = defaultdict(list)
        for one in wanted:
            try:
                by_log_dir[self.home(one.partition, one.leader_epoch)].append(one)
            except StorageError as error:
                failed[one.partition] = error

        async def open_there(log_dir: LogDir, roles: Sequence[Role]) -> None:
            for start in range(0, len(roles), BATCH_MAX):
                chunk = roles[start : start + BATCH_MAX]
                async with self._claims.lock(one.partition for one in chunk):
                    failed.update(await self._open_in(log_dir, chunk, again, newest))

        async with trio.open_nursery() as nursery:
            for log_dir, roles in by_log_dir.items():
                nursery.start_soon(open_there, log_dir, roles)
        return [failed.get(one.partition) or self._sound(one.partition) for one in wanted]

    def _sound(self, partition: TopicIdPartition) -> Partition | EngineError:
        try:
            found = self._partitions.get(partition)
            if found is None:
                return unknown(partition)
            found.check_open()
        except EngineError as error:
            return error
        return found

    async def _open_in(
        self, log_dir: LogDir, wanted: Sequence[Role], again: Collection[TopicIdPartition], newest: Newest
    ) -> dict[TopicIdPartition, EngineError]:
        """Open partitions in one log dir; returns the error of each that failed."""
        if self.is_closed:
            return {one.partition: shutting_down() for one in wanted}
        closed = [one.partition for one in wanted if one.partition in again]
        failed = await release_closed(self._partitions, closed)
        missing = [one for one in wanted if one.partition not in self._partitions]
        for one in missing:  # a log that is opened again has no home otherwise: its deletion would be lost
            self._coming[log_dir].setdefault(directory_name(one.partition), set()).add(one.partition)
        try:
            failed |= await self._assume(log_dir, wanted, newest)
            await log_dir.reload_stored([one.partition for one in missing if one.partition in again])
            known = [(one, log_dir.last_known(one.partition, has_others=one.has_others)) for one in missing]
            for chunk in split_into_jobs(known):
                failed |= await self._make(log_dir, chunk, newest)
        finally:
            for one in missing:
                self.forget_home(one.partition)
        return failed

    async def _assume(
        self, log_dir: LogDir, wanted: Sequence[Role], newest: Newest
    ) -> dict[TopicIdPartition, EngineError]:
        """Let the partitions that are already open take their new roles, between two commit batches: a batch carries
        the leader epoch in which it was staged. Returns the error of each that failed."""
        failed: dict[TopicIdPartition, EngineError] = {}
        here = [(found, one) for one in wanted if (found := self._partitions.get(one.partition)) is not None]
        async with log_dir.commit_log.committer.between_commit_batches() if here else nullcontext():
            for found, one in here:
                if (role := newest(one)) is not None:
                    try:
                        take_role(found, role)
                    except EngineError as error:
                        failed[one.partition] = error
        return failed

    async def _make(
        self, log_dir: LogDir, wanted: Sequence[Known], newest: Newest
    ) -> dict[TopicIdPartition, EngineError]:
        """Open or create the logs of partitions that are not open; returns the error of each that failed."""
        failed: dict[TopicIdPartition, EngineError] = {}
        try:
            logs = await open_logs(log_dir, wanted)
        except StorageError as error:
            return dict.fromkeys((one.partition for one, _ in wanted), error)
        for (one, last_known), log in zip(wanted, logs, strict=True):
            try:
                if isinstance(log, StorageError):
                    raise log
                await self._add_opened(log_dir, one, log, last_known, newest)
            except EngineError as error:
                failed[one.partition] = error
        return failed

    async def _add_opened(self, log_dir: LogDir, wanted: Role, log: Log, last_known: LastKnown, newest: Newest) -> None:
        for problem in descriptions.problems_of(log):
            self._deps.on_problem(problem)
        if wanted.config.preallocate and log.damaged_from is None:
            log_dir.note_unallocated(await log_dir.disk.run(partial(log.preallocate, wanted.config.segment_size_bytes)))
        opened = Partition(wanted.partition, log, log_dir, self._deps.now_ms)
        opened.opening = opening_of(log, last_known)
        try:
            if (role := newest(wanted)) is not None:
                opened.assume(role)  # if it is refused, the partition is not served at all
            await log_dir.adopt(opened, last_known)
        except EngineError:
            self._caches.forget(log.segments)
            raise
        if role is None or newest(wanted) is None:
            opened.suspend()
        self._partitions[wanted.partition] = opened

    # Waiting for a newer role

    def suspend(self, partition: TopicIdPartition, wanted: tuple[bool, int] | None) -> None:
        """Suspend the partition until `open` gives it its newest role, unless it has the wanted role already.

        `wanted`: (whether this broker leads it, leader epoch); None: suspend it in any role.
        """
        found = self._partitions.get(partition)
        if found is not None and (wanted is None or (found.is_led, found.leader_epoch) != wanted):
            found.suspend()

    # Deletion

    async def delete(self, partitions: Sequence[TopicIdPartition]) -> list[EngineError | None]:
        failed: dict[TopicIdPartition, EngineError] = {}
        by_log_dir: defaultdict[LogDir | None, list[TopicIdPartition]] = defaultdict(list)
        for one in partitions:
            by_log_dir[self.known_home(one)].append(one)

        async def delete_there(there: Sequence[TopicIdPartition]) -> None:
            for start in range(0, len(there), BATCH_MAX):
                chunk = there[start : start + BATCH_MAX]
                async with self._claims.lock(chunk):
                    failed.update(await self._delete_chunk(chunk))

        async with trio.open_nursery() as nursery:
            for there in by_log_dir.values():
                nursery.start_soon(delete_there, there)
        return [failed.get(one) for one in partitions]

    async def _delete_chunk(self, partitions: Sequence[TopicIdPartition]) -> Mapping[TopicIdPartition, EngineError]:
        if self.is_closed:
            return {one: shutting_down() for one in partitions}
        failed: dict[TopicIdPartition, EngineError] = {}
        by_log_dir: dict[LogDir, list[Partition]] = {}
        for one in partitions:
            found = self._partitions.pop(one, None)
            self.forget_home(one)
            if found is None:
                failed[one] = unknown(one)
            else:
                found.close(partial(UnknownPartition, f"{one.topic}-{one.partition} was deleted"))
                by_log_dir.setdefault(found.log_dir, []).append(found)
        for log_dir, there in by_log_dir.items():
            try:
                await delete_logs(log_dir, [one.partition for one in there])
                await log_dir.close_logs([found.log for found in there])
            except StorageError as error:
                failed |= {one.partition: error for one in there}
        return failed


def unknown(partition: TopicIdPartition) -> EngineError:
    return UnknownPartition(f"{partition.topic}-{partition.partition} is not on this broker")


def shutting_down() -> EngineError:
    return NotLeaderOrFollower("the broker is shutting down")
