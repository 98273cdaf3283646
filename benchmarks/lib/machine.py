"""Facts about the machine, the versions and the commit for each result; and CPU and memory of a broker."""

from __future__ import annotations

import importlib.metadata
import mmap
import os
import platform
import resource
import subprocess
import time
from pathlib import Path

from compat_tests.harness.processes import children_of
from compat_tests.harness.versions import client

ROOT = Path(__file__).resolve().parents[2]
CPU_CLOCK = 2  # of a process, by its id: as clock_getcpuclockid(3) does, which Python lacks
WRITTEN_BY_RUNS = (":!benchmarks/results", ":!docs/pictures")  # results of earlier runs are no change of the commit


def facts() -> dict[str, str]:
    """The machine and the versions, as they are printed at the head of a result."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    memory_kib = int(_line("/proc/meminfo", "MemTotal").split()[1])
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + (" with changes" if _changes() else ""),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "processor": _line("/proc/cpuinfo", "model name").partition(":")[2].strip(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "trio": importlib.metadata.version("trio"),
        "kafkawire": importlib.metadata.version("kafkawire"),
        "Apache Kafka": client("kafka-tools").newest,  # out of the same jars
        "java": java.splitlines()[0],
    }


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, by the nanosecond."""
    return time.clock_gettime(~pid << 3 | CPU_CLOCK)


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and its descendants, in hundredths; those that have ended count for their parents."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return 0.0
    ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(tree_cpu_s, children_of(pid)))


def tree_read_bytes(pid: int) -> int:
    """Bytes that a process and its running descendants have read so far, from files or otherwise."""
    try:
        own = int(_line(f"/proc/{pid}/io", "rchar").split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return 0
    return own + sum(map(tree_read_bytes, children_of(pid)))


def first_thread_cpu_s(pid: int) -> float:
    """CPU seconds of the first thread of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def rss_peak_mib(pid: int) -> float:
    return int(_line(f"/proc/{pid}/status", "VmHWM").split()[1]) / 1024


def rss_mib(pid: int) -> float:
    return int(_line(f"/proc/{pid}/status", "VmRSS").split()[1]) / 1024


def back_memory(size_bytes: int) -> None:
    """Touch as much memory and release it, so that the page cache finds it at hand.

    The host of a virtual machine supplies memory when it is first touched, which can cost more than the write that
    needed it. A contender must not pay for memory that another one has not given back yet.
    """
    with mmap.mmap(-1, max(size_bytes, mmap.PAGESIZE)) as memory:
        for position in range(0, len(memory), mmap.PAGESIZE):
            memory[position] = 1


def raise_descriptor_limit() -> None:
    """Raise the limit of open files for this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def drop_page_cache(directory: Path) -> None:
    """Drop the cached pages of the files below a directory; pages that a process has mapped stay."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _changes() -> str:
    return _git("status", "--short", "-uno", "--", ".", *WRITTEN_BY_RUNS)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() or "unknown" if done.returncode else done.stdout.strip()


def _line(path: str, start: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(start):
            return line
    return ": 0"
