"""Problems of a broker on this machine with this configuration, with advice.

The checks use plain facts, which `kafkawire.process.machine_facts` collects; this module neither asks the system nor
changes anything. A *problem* prevents the start of a broker or has already cost data, a *warning* may do so, a *note*
is worth knowing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafkawire.config.broker_config import Config

DESCRIPTORS_SPARE: Final = 1_000  # for clients, beside one for each partition
DISK_FULL_SOON: Final = 0.85
FILES_LEFT_MIN: Final = 0.05
SYNC_SLOW_MS: Final = 10.0
MEMORY_MIN_BYTES: Final = 512 * 1024 * 1024
FORGETTING: Final = frozenset({"tmpfs", "ramfs", "overlay"})
REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "ceph"})


class Severity(Enum):
    """Severity of a finding."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """A finding about a subject, in one line, with advice."""

    severity: Severity
    subject: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirFacts:
    """Facts about a log dir.

    Without a `reason`, files can be written there. The ratio of used space is of the whole space; the sync time is that
    of 4 KiB. `owner` is (cluster id, broker id) in the dir's identity file, None before its first use.
    """

    path: str
    exists: bool
    reason: str | None = None
    device: int = 0
    filesystem: str = ""
    used_ratio: float = 0.0
    files_left_ratio: float = 1.0
    sync_median_ms: float | None = None
    owner: tuple[str, int] | None = None
    is_in_use: bool = False
    was_stopped_cleanly: bool = True
    partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Limits of a process, and memory."""

    descriptors_max: int
    memory_size_bytes: int


def examine(config: Config, machine: MachineFacts, dirs: Sequence[DirFacts]) -> Iterator[Finding]:
    """All findings that need no reading of records."""
    yield from _listeners(config)
    yield from _machine(machine, sum(one.partitions for one in dirs))
    for one in dirs:
        yield from _dir(one, config)
    yield from _log_dirs_together(dirs)


def _listeners(config: Config) -> Iterator[Finding]:
    for listener in config.listeners:
        if listener.host in ("", "0.0.0.0", "::") and config.advertised(listener.name) is None:  # noqa: S104 - compared
            yield Finding(
                Severity.NOTE, f"listener {listener.name}",
                "it is at every address, and each client is told the one it came by",
                "set advertised.listeners if clients reach it through another address, such as a container's host",
            )  # fmt: skip
    if config.http_listener is not None and not is_loopback(config.http_listener[0]):
        yield Finding(
            Severity.WARNING, "http.listeners",
            "every client that reaches it can read every topic: it has no security yet",
            "bind 127.0.0.1, or put a proxy with authentication before it",
        )  # fmt: skip


def is_loopback(host: str) -> bool:
    """Whether only clients of this machine reach a listener at that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _machine(machine: MachineFacts, partitions: int) -> Iterator[Finding]:
    wanted = partitions + DESCRIPTORS_SPARE
    if machine.descriptors_max < wanted:
        yield Finding(
            Severity.WARNING,
            "open files",
            f"a process may open {machine.descriptors_max:,}; {wanted:,} would do for {partitions:,} partitions",
            "raise the hard limit (ulimit -n, LimitNOFILE= of systemd): with fewer, files are closed and opened again",
        )
    if machine.memory_size_bytes < MEMORY_MIN_BYTES:
        yield Finding(
            Severity.WARNING, "memory", f"{machine.memory_size_bytes >> 20} MiB leave little for the page cache",
            "records are read from the disk instead",
        )  # fmt: skip


def _dir(one: DirFacts, config: Config) -> Iterator[Finding]:
    subject = f"log dir {one.path}"
    if one.reason is not None:
        yield Finding(Severity.PROBLEM, subject, one.reason, "a broker cannot start on it")
        return
    if not one.exists:
        yield Finding(Severity.NOTE, subject, "it is not there yet: the broker will make it")
    elif one.is_in_use:
        yield Finding(Severity.NOTE, subject, "a broker uses it: the checks that need a stopped broker are skipped")
    elif not one.was_stopped_cleanly:
        text = "the broker was not stopped in order"
        yield Finding(Severity.NOTE, subject, text, "its next start checks the newest records")
    if one.owner is not None and one.owner[1] != config.node_id:
        yield Finding(
            Severity.PROBLEM, subject, f"it belongs to broker {one.owner[1]} of cluster {one.owner[0]}, not to broker "
            f"{config.node_id}", "set node.id, or another directory",
        )  # fmt: skip
    yield from _disk(one, subject, config)


def _disk(one: DirFacts, subject: str, config: Config) -> Iterator[Finding]:
    if one.filesystem in FORGETTING:
        yield Finding(Severity.WARNING, subject, f"it is on {one.filesystem}, which forgets", "mount a disk there")
    if one.filesystem in REMOTE:
        text = f"it is on {one.filesystem}: two machines may take it at once, and syncing is slow"
        yield Finding(Severity.WARNING, subject, text, "use a disk of this machine")
    if one.used_ratio >= config.disk_reject_ratio:
        text = f"the disk is {one.used_ratio:.0%} full: from {config.disk_reject_ratio:.0%} on nothing is appended"
        yield Finding(Severity.PROBLEM, subject, text, "make room, or raise disk.reject.ratio")
    elif one.used_ratio >= DISK_FULL_SOON:
        text = f"the disk is {one.used_ratio:.0%} full"
        yield Finding(
            Severity.WARNING, subject, text, "set retention.bytes, or disk.max.used.ratio to let old segments go"
        )
    if one.files_left_ratio < FILES_LEFT_MIN:
        text = f"the disk has room for {one.files_left_ratio:.1%} of its files only"
        yield Finding(Severity.WARNING, subject, text, "each segment is a file or two")
    if one.sync_median_ms is not None and one.sync_median_ms > SYNC_SLOW_MS:
        text = f"fdatasync takes {one.sync_median_ms:.0f} ms, and so does every acknowledged write"
        advice = "use a disk that syncs faster; or flush.policy=async for topics that may lose their last second"
        yield Finding(Severity.WARNING, subject, text, advice)


def _log_dirs_together(dirs: Sequence[DirFacts]) -> Iterator[Finding]:
    by_device: dict[int, list[str]] = {}
    for one in dirs:
        if one.exists:
            by_device.setdefault(one.device, []).append(one.path)
    for paths in by_device.values():
        if len(paths) > 1:
            text = f"{', '.join(paths)} are on one disk"
            yield Finding(Severity.NOTE, "log.dirs", text, "several log dirs help only when they fail one by one")
    owners = {one.owner[0] for one in dirs if one.owner is not None}
    if len(owners) > 1:
        yield Finding(Severity.PROBLEM, "log.dirs", f"they are of different clusters: {', '.join(sorted(owners))}")
