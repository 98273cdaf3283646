"""What a job asks of a table, whatever its format."""

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
OWN: Final = "kafkawire"  # what names of ours begin with, in folders and properties that others use as well


class Place(NamedTuple):
    topic_id: bytes  # 16 bytes: a topic created again is another one
    partition: int


class Position(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int  # the next one to export


@dataclass(frozen=True)
class Progress:
    """Up to where a job has committed; without commits, it never has. Commits are counted, so that whoever commits one
    without rows has moved, too."""

    offsets: Mapping[Place, int] = field(default_factory=dict)
    commits: int = 0

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(Position(*place, offset) for place, offset in sorted(self.offsets.items()))

    def advanced(self, positions: Iterable[Position]) -> Progress:
        """By one commit; what is not named stays where it is. Raises ValueError for an offset that goes back."""
        offsets = dict(self.offsets)
        for topic_id, partition, offset in positions:
            place = Place(topic_id, partition)
            if offset < offsets.get(place, 0):
                raise ValueError(f"partition {partition} is at {offsets.get(place, 0)} and cannot go back to {offset}")
            offsets[place] = offset
        return Progress(offsets, self.commits + 1)


class Table(Protocol):
    """Errors of stores, such as OSError, are raised as they come where nothing can have been committed."""

    def schema(self) -> pa.Schema | None:
        """What files have to have; None: there is no such table yet."""

    def create(self, schema: pa.Schema) -> None:
        """Makes it, with types that its format has, unless it is there. Raises TableRefused for one that is there and
        cannot be appended to."""

    def progress(self, job: str) -> Progress: ...

    def data_location(self) -> str:
        """Where tasks write files, as `spark_connectors.locations` opens it. What is there counts once it is
        committed. Names are new ones, never used before: they may be of use to whoever looks, and are not to us."""

    def commit(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        """Appends the files if the job is at `before`, and moves it to `after`, which is one commit further: both, or
        neither. Raises Superseded, CommitUnknown, SchemaRefused, TableRefused, FileRefused."""

    def files(self) -> tuple[str, ...]:
        """Those that a reader would read now, whoever has added them: paths, or URIs. Raises TableRefused where it
        would see other rows than they have."""

    def sweep(self, older_than_s: float) -> int:
        """Deletes files of that age, and more, that no commit has taken, and says how many. Whoever may yet commit one
        has to be younger."""


def check_job(job: str) -> None:
    """Raises ValueError: it becomes part of names."""
    if not _JOB.fullmatch(job):
        raise ValueError(f"a job is named with up to 100 letters, digits, '.', '_' and '-', not {job!r}")


def check_step(before: Progress, after: Progress) -> None:
    """Raises ValueError for what `Progress.advanced` does not make."""
    if after != before.advanced(after.positions):
        raise ValueError("a commit goes from where a job is to one commit further, and no partition is forgotten")


def refuse_files(name: str, reason: str) -> TableRefused:
    return TableRefused(f"the rows of {name} are not those of its files: {reason}")


def refuse_table(name: str, reason: str) -> TableRefused:
    return TableRefused(f"nothing can be exported to {name}: {reason}")
