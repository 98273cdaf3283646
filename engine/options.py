"""Options and dependencies of a store."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from engine.compaction.cleaning_pass import CleanerOptions
from engine.files.filesystem import FileSystem
from engine.files.io_workers import WorkerPool
from engine.index.store import OpenIndex
from engine.tier import NoTier, SegmentTier
from engine.upkeep.retention_task import RetentionOptions
from engine.upkeep.sealing import SealingOptions


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Storage options from the broker's configuration. `log_dirs` are absolute paths."""

    log_dirs: tuple[str, ...]
    cluster_id: str
    broker_id: int
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    reader_workers: int = 1  # of each log dir
    journal_slot_size_bytes: int = 32 * 1024 * 1024
    open_files_max: int = 4096  # segments, not counting those with bytes that are not synced yet
    loaded_indexes_max: int = 1024  # of finished segments, at most 24 KiB each if not dense
    dense_indexes_max: int = 128  # of any segments, at most 384 KiB each
    queue_max_bytes: int = 64 * 1024 * 1024  # of all append queues, in equal parts for the log dirs
    stray_retention_ms: int = 604_800_000  # of running time
    retention: RetentionOptions = field(default_factory=RetentionOptions)
    sealing: SealingOptions = field(default_factory=SealingOptions)
    cleaner: CleanerOptions = field(default_factory=CleanerOptions)


@dataclass(frozen=True, slots=True)
class StoreDeps:
    """Dependencies of the store.

    `on_fatal`: called once, with the reason, when the last log dir goes offline. `on_offline`: called when a log dir or
    a partition goes offline. `on_problem`: called with each message for the operator.
    """

    filesystem: FileSystem
    open_index: OpenIndex
    pool: WorkerPool
    random: Random
    now_ms: Callable[[], int]
    on_fatal: Callable[[str], None]
    on_problem: Callable[[str], None]
    tier: SegmentTier = field(default_factory=NoTier)
    on_offline: Callable[[], None] = lambda: None
