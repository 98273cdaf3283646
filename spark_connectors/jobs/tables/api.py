"""Interface of a table, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from spark_connectors.jobs.tables.errors import TableRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connectors.jobs.tables.facts import NewFile

_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
OWN: Final = "kafkawire"  # prefix of our names, in folders and properties that others use too


class Place(NamedTuple):
    topic_id: bytes  # 16 bytes; a recreated topic has another id
    partition: int


class Position(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int  # the next one to export


@dataclass(frozen=True)
class Progress:
    """End offsets up to which a job has committed; empty before its first commit. Commits are counted, so that a commit
    without rows is progress too.
    """

    offsets: Mapping[Place, int] = field(default_factory=dict)
    commits: int = 0

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(Position(*place, offset) for place, offset in sorted(self.offsets.items()))

    def advanced(self, positions: Iterable[Position]) -> Progress:
        """Progress after one more commit; partitions without a position stay where they are. Raises ValueError for an
        offset that goes back.
        """
        offsets = dict(self.offsets)
        for topic_id, partition, offset in positions:
            place = Place(topic_id, partition)
            if offset < offsets.get(place, 0):
                raise ValueError(f"partition {partition} is at {offsets.get(place, 0)} and cannot go back to {offset}")
            offsets[place] = offset
        return Progress(offsets, self.commits + 1)


class Table(Protocol):
    """A table. If nothing can have been committed, errors of stores, such as OSError, are raised as they are."""

    def schema(self) -> pa.Schema | None:
        """Schema that files must fit; None: the table does not exist."""

    def create(self, schema: pa.Schema) -> None:
        """Create the table with types of its format, unless it exists. Raises TableRefused if it exists and cannot be
        appended to.
        """

    def progress(self, job: str) -> Progress: ...

    def data_location(self) -> str:
        """Location where tasks write files, for `spark_connectors.locations`. A file counts when it is committed. Its
        name must be new, and has no meaning for the table.
        """

    def commit(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        """Append the files and move the job from `before` to `after`, one commit further: both or neither. Raises
        Superseded, CommitUnknown, SchemaRefused, TableRefused, FileRefused.
        """

    def files(self) -> tuple[str, ...]:
        """Paths or URIs of all files that a reader would read now. Raises TableRefused if a reader would see other rows
        than those of the files.
        """

    def sweep(self, older_than_s: float) -> int:
        """Delete files of at least that age that no commit names; returns their number. Runs that may still commit
        files must be younger.
        """


def check_job(job: str) -> None:
    """Raises ValueError for a name that cannot be part of other names."""
    if not _JOB.fullmatch(job):
        raise ValueError(f"a job is named with up to 100 letters, digits, '.', '_' and '-', not {job!r}")


def check_step(before: Progress, after: Progress) -> None:
    """Raises ValueError unless `after` is one commit after `before`, and no offset goes back."""
    if after != before.advanced(after.positions):
        raise ValueError("a commit goes from where a job is to one commit further, and no partition is forgotten")


def refuse_files(name: str, reason: str) -> TableRefused:
    return TableRefused(f"the rows of {name} are not those of its files: {reason}")


def refuse_table(name: str, reason: str) -> TableRefused:
    return TableRefused(f"nothing can be exported to {name}: {reason}")
