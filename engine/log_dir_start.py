"""Start of log dirs: build their parts, and take possession of their content (lock, identity, checkpoint, journal)."""

from collections.abc import Callable
from functools import partial

import trio

from engine.commit.backpressure import CommitBatchHold, QueueBudget
from engine.commit.commit_log import CommitLog
from engine.errors import StorageError
from engine.errors import UnreadableMessage as Unreadable
from engine.files.disk import Disk, DiskWorkers
from engine.files.filesystem import FileSystem
from engine.index.stored_index import StoredIndex
from engine.log_dirs.layout import INDEX, Identity, Prepared, prepare
from engine.log_dirs.log_dir import LogDir, Shared
from engine.log_dirs.stray_files import resume
from engine.options import StoreDeps, StoreOptions
from engine.upkeep.retention_task import RetentionTask
from engine.upkeep.sealing import Sealer


def new_log_dir(
    number: int,
    on_offline: Callable[[OSError], None],
    options: StoreOptions,
    deps: StoreDeps,
    hold: CommitBatchHold,
    shared: Shared,
) -> LogDir:
    """Build the log dir of that number in `options`, without taking possession of it."""
    path, workers = options.log_dirs[number], DiskWorkers.of(number, options.reader_workers)
    disk = Disk(path, deps.filesystem, deps.pool, workers, on_offline)
    index = StoredIndex(f"{path}/{INDEX}", deps.filesystem, deps.open_index, deps.pool, workers.index, deps.on_problem)
    budget = QueueBudget(options.queue_max_bytes // len(options.log_dirs))
    commit_log = CommitLog(disk, budget, hold, lambda: shared.caches.files.is_crowded)
    return LogDir(disk, commit_log, index, shared)


def start_upkeep(nursery: trio.Nursery, log_dir: LogDir, options: StoreOptions, now_ms: Callable[[], int]) -> None:
    """Start the background tasks of a log dir: retention, sealing, scrub."""
    retention, sealer = RetentionTask(log_dir, options.retention, now_ms), Sealer(log_dir, options.sealing)
    log_dir.want_seal = sealer.want
    tasks = retention.watch_space, retention.serve, sealer.serve, sealer.scrub
    nursery.start_soon(log_dir.serve, tasks)


async def possess(
    log_dir: LogDir,
    filesystem: FileSystem,
    identity: Identity,
    new_id: bytes,
    slot_size_bytes: int,
    on_problem: Callable[[str], None],
) -> Exception | None:
    """Take possession of a log dir, so that its partitions can be opened. `new_id`: see `prepare`.

    Returns the error if its disk fails; the log dir is offline then. Raises StoreRefused if the log dir belongs to
    another broker.
    """
    try:
        prepared = await log_dir.disk.run(partial(_prepare, filesystem, log_dir.disk.path, identity, new_id))
    except (StorageError, Unreadable) as error:
        log_dir.disk.fail(OSError(str(error)))  # also when the disk is full: then it could not be locked
        return error
    log_dir.possess(prepared, slot_size_bytes)
    for problem in prepared.journal.problems:
        on_problem(problem)
    await log_dir.index.open()
    return None


def _prepare(filesystem: FileSystem, path: str, identity: Identity, new_id: bytes) -> Prepared:
    return resume(filesystem, path, prepare(filesystem, path, identity, new_id))
