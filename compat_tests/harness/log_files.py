"""Size of a log on disk, while a broker may replace its files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from compat_tests.harness.broker import Broker


def size_on_disk(broker: Broker, topic: str) -> int:
    """The size of the segments of partition 0 on its leader, in bytes."""
    return size_bytes((broker.leader_of(topic).data_dir / f"{topic}-0").glob("*.log"))


def size_bytes(files: Iterable[Path]) -> int:
    """The size in bytes of those files that still exist."""
    found = 0
    for one in files:
        with suppress(FileNotFoundError):  # replaced just now
            found += one.stat().st_size
    return found
