"""Comparison of the partitions of stopped brokers, byte for byte.

Two logs are compared from the point where the files of both begin up to the end of the shorter one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SEGMENTS = "[0-9]" * 20 + ".log"


def differences(data_dirs: Mapping[int, Path]) -> list[str]:
    """The differences by partition. `data_dirs` is by broker id; a log that only one broker has is not compared."""
    names = sorted({one.parent.name for path in data_dirs.values() for one in path.glob(f"*/{SEGMENTS}")})
    return [found for name in names for found in _of_partition(name, data_dirs)]


def _of_partition(name: str, data_dirs: Mapping[int, Path]) -> list[str]:
    directories = {broker_id: path / name for broker_id, path in data_dirs.items() if (path / name).is_dir()}
    starts = [{one.name for one in path.glob(SEGMENTS)} for path in directories.values()]
    shared_starts = set.intersection(*starts)
    if not shared_starts:
        return [f"{name}: no segment of brokers {[*directories]} begins where one of each of the others does"]
    logs = {broker_id: log_of(path, min(shared_starts)) for broker_id, path in directories.items()}
    (first_id, first), *others = logs.items()
    found = []
    for broker_id, log in others:
        shared = min(len(first), len(log))
        if first[:shared] != log[:shared]:
            position = next(place for place in range(shared) if first[place] != log[place])
            sizes = f"{len(first)} and {len(log)} bytes"
            found.append(f"{name} of brokers {first_id} and {broker_id} differs from byte {position} on, of {sizes}")
    return found


def log_of(directory: Path, first: str) -> bytes:
    """The bytes of all segments from the one of this name on."""
    return b"".join(one.read_bytes() for one in sorted(directory.glob(SEGMENTS)) if one.name >= first)
