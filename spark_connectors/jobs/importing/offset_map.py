"""The offset map of an import: a file of JSON lines, and the translation of an offset.

    {"format": 1, "source": "orders", "source_id": "9f…", "target": "orders", "target_id": "04…"}
    {"partition": 0, "source": 100, "target": 0, "count": 50}

Each line after the first one is a run of consecutive records of both topics. Lines are synced before the transaction of
their records is committed. So a line is valid if the position of the group lies behind it. Otherwise it is dropped.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from spark_connectors.jobs.importing.errors import ImportRefused

FORMAT: Final = 1


class Run(NamedTuple):
    """Records with consecutive offsets in both topics."""

    partition: int
    source: int
    target: int
    records: int

    @property
    def source_end(self) -> int:
        return self.source + self.records


class OffsetMap:
    """Offset map of one partition, by its runs."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = sorted(runs)
        self._starts = [one.source for one in self._runs]

    def translated(self, offset: int) -> int | None:
        """Target offset of the first record at or after an offset of the source. Behind all records: the lowest offset
        that the next record can get. None: nothing was imported.
        """
        if not self._runs:
            return None
        number = bisect_right(self._starts, offset) - 1
        if number >= 0 and offset < self._runs[number].source_end:
            return self._runs[number].target + offset - self._runs[number].source
        if number + 1 < len(self._runs):
            return self._runs[number + 1].target
        return self._runs[number].target + self._runs[number].records


class MapFile:
    """The file of an offset map. `topics` is its first line."""

    def __init__(self, path: str, topics: Mapping[str, str]) -> None:
        self._path = Path(path)
        self._topics = {"format": FORMAT, **topics}

    def begin(self, positions: Mapping[int, int], counts: Mapping[int, int]) -> list[Run]:
        """Keep the valid lines, by the position and the number of records of each partition, and drop the others.

        Returns the valid runs. Raises ImportRefused if the file is of other topics, or lacks records.
        """
        runs = [one for one in self._read() if one.source_end <= positions.get(one.partition, 0)]
        for partition, count in counts.items():
            found = sum(one.records for one in runs if one.partition == partition)
            if found != count:
                raise ImportRefused(
                    f"{self._path} has {found} records of partition {partition}, and {count} were imported: "
                    f"it is not the file of this import"
                )
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self._topics) + "\n")
            file.writelines(_line(one) for one in runs)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        return runs

    def add(self, runs: Iterable[Run]) -> None:
        """Append runs; they are synced when it returns."""
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(_line(one) for one in runs)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> Iterator[Run]:
        try:
            first, *lines = self._path.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, ValueError):  # no file, or an empty one
            return
        try:
            topics = json.loads(first)
        except ValueError:
            topics = None
        if topics != self._topics:
            raise ImportRefused(f"{self._path} is not the offset map of this import")
        for line in lines:
            try:
                fields = json.loads(line)
                yield Run(fields["partition"], fields["source"], fields["target"], fields["count"])
            except (KeyError, TypeError, ValueError):
                return  # an incomplete line is the last line that was written


def _line(run: Run) -> str:
    fields = {"partition": run.partition, "source": run.source, "target": run.target, "count": run.records}
    return json.dumps(fields) + "\n"
