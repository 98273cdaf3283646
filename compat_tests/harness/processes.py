"""What processes have started."""

from __future__ import annotations

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Of all its threads."""
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]
