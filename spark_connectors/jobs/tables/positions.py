"""Progress as JSON: `{"commits": 3, "positions": {"<topic id>": {"0": 23, "1": 5}}}`. Pure."""

from __future__ import annotations

from typing import Any

from spark_connectors.jobs.tables.api import Place, Progress


def progress_to_json(progress: Progress) -> dict[str, Any]:
    """Progress as an object for json.dumps."""
    positions: dict[str, dict[str, int]] = {}
    for topic_id, partition, offset in progress.positions:
        positions.setdefault(topic_id.hex(), {})[str(partition)] = offset
    return {"commits": progress.commits, "positions": positions}


def progress_of(data: Any) -> Progress:
    """Parse the output of `progress_to_json`. Raises ValueError for anything else."""
    try:
        offsets = {
            Place(bytes.fromhex(topic_id), int(partition)): int(offset)
            for topic_id, partitions in data["positions"].items()
            for partition, offset in partitions.items()
        }
        return Progress(offsets, int(data["commits"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no progress of a job: {data!r}") from error
