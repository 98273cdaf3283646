"""Facts about this machine that matter to a broker. Nothing is changed except for a temporary file."""

from __future__ import annotations

import os
import resource
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.errors import StorageError, StoreRefused
from engine.files.filesystem import PosixFileSystem
from engine.log_dirs.layout import CLEAN_SHUTDOWN, LOCK, META, identity_of, is_partition_name
from kafkawire.process.doctor import DirFacts, MachineFacts

SYNCS: Final = 20
SYNCED_SIZE_BYTES: Final = 4096
PROBE: Final = ".doctor"


def machine() -> MachineFacts:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory_size_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MachineFacts(descriptors_max=hard, memory_size_bytes=memory_size_bytes)


def log_dir(path: Path) -> DirFacts:
    """Facts about a directory that may be missing, or no directory."""
    path = path.absolute()
    if not path.exists():
        return _of_nothing(path)
    if not path.is_dir():
        return DirFacts(path=str(path), exists=True, reason="it is no directory")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return DirFacts(path=str(path), exists=True, reason="it cannot be written to")
    filesystem, usage = PosixFileSystem(), os.statvfs(path)
    is_in_use = _is_in_use(filesystem, path)
    names = [entry.name for entry in path.iterdir()]
    partitions = sum(map(is_partition_name, names))
    try:
        owner = _owner(filesystem, path) if META in names or partitions else None
    except (StorageError, StoreRefused, OSError) as error:
        return DirFacts(path=str(path), exists=True, reason=str(error))
    sync_median_ms = None
    with suppress(OSError):
        sync_median_ms = _sync_median_ms(path / PROBE)
    return DirFacts(
        path=str(path),
        exists=True,
        device=path.stat().st_dev,
        filesystem=filesystem_of(path),
        used_ratio=filesystem.usage(str(path)).ratio,
        files_left_ratio=usage.f_favail / usage.f_files if usage.f_files else 1.0,
        sync_median_ms=sync_median_ms,
        owner=owner,
        is_in_use=is_in_use,
        was_stopped_cleanly=META not in names or CLEAN_SHUTDOWN in names,
        partitions=partitions,
    )


def _of_nothing(path: Path) -> DirFacts:
    parent = next(one for one in path.parents if one.exists())
    reason = None if os.access(parent, os.W_OK | os.X_OK) else f"it is not there, and {parent} cannot be written to"
    return DirFacts(path=str(path), exists=False, reason=reason)


def _is_in_use(filesystem: PosixFileSystem, path: Path) -> bool:
    if not (path / LOCK).exists():
        return False
    try:
        filesystem.lock(str(path / LOCK)).release()
    except BlockingIOError:
        return True
    return False


def _owner(filesystem: PosixFileSystem, path: Path) -> tuple[str, int]:
    identity = identity_of(filesystem, str(path))
    return identity.cluster_id, identity.broker_id


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """The type of the filesystem of `path`; "" if the system does not tell it."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    resolved, best, found = path.resolve(), -1, ""
    for line in mounts.splitlines():
        _, where, kind, *_ = line.split(" ")
        point = Path(where.encode().decode("unicode_escape"))
        if resolved.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), kind
    return found


def _sync_median_ms(probe: Path) -> float:
    times_s = []
    descriptor = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        for number in range(SYNCS):
            os.pwrite(descriptor, bytes(SYNCED_SIZE_BYTES), number * SYNCED_SIZE_BYTES)
            started_s = time.perf_counter()
            os.fdatasync(descriptor)
            times_s.append(time.perf_counter() - started_s)
    finally:
        os.close(descriptor)
        probe.unlink()
    return 1000 * statistics.median(times_s)
