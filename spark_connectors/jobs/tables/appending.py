"""Outcome of a commit that was refused or not answered.

Stores take a commit only on top of the snapshot that its writer has seen. A refused commit may have lost to another run
of the job, which ends this one, or to another writer; then it is tried again on top of that. A commit without an answer
is looked up. Either may be in the table all the same: a store's client repeats a request if its answer is lost, and the
repetition is refused because of the first one. File names are unique, so they show whether a commit is this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from spark_connectors.jobs.tables.api import Progress, check_job, check_step
from spark_connectors.jobs.tables.errors import CommitUnknown, Superseded
from spark_connectors.jobs.tables.facts import NewFile

ATTEMPTS: Final = 10  # against other writers, each of which has committed in between


class Refused(Exception):
    """Another commit came first since the snapshot was read. This one is not in the table, unless both are the same."""


class Snapshot(Protocol):
    """A table as it was at one moment."""

    def progress(self, job: str) -> Progress: ...

    def check(self, files: Sequence[NewFile]) -> None:
        """Raises SchemaRefused, TableRefused."""

    def has(self, files: Sequence[NewFile]) -> bool:
        """Whether the table has any of these files, of which there is at least one."""

    def append(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        """Commit on top of this snapshot, or not at all if the job has moved. Raises Refused; after any other error,
        the outcome is unknown.
        """


def append(
    latest: Callable[[], Snapshot | None], job: str, files: Sequence[NewFile], before: Progress, after: Progress
) -> None:
    """Commit the files and the progress. `latest` returns None if there is no such table. Raises as `Table.commit`
    does.
    """
    check_job(job)
    check_step(before, after)
    refusal: Refused | None = None
    for _ in range(ATTEMPTS):
        snapshot = _seen(latest, job, refusal)
        if snapshot is None:
            raise Superseded("there is no such table (any more)")
        if (now := snapshot.progress(job)) != before:
            if refusal is not None and _is_taken(snapshot, files, now, after):
                return
            raise superseded(job, before, now) from refusal
        snapshot.check(files)
        try:
            snapshot.append(job, files, before, after)
        except Refused as error:
            refusal = error
        except Exception as error:
            _find(latest, job, files, before, after, error)
            return
        else:
            return
    raise CommitUnknown(f"job {job}: others have committed meanwhile, {ATTEMPTS} times: {refusal}") from refusal


def _seen(latest: Callable[[], Snapshot | None], job: str, refusal: Refused | None) -> Snapshot | None:
    """Read the newest snapshot. After a refusal, an error is raised as CommitUnknown, because an earlier attempt may
    have succeeded.
    """
    try:
        return latest()
    except Exception as error:
        if refusal is None:
            raise
        raise _unknown(job, error) from error


def superseded(job: str, before: Progress, now: Progress) -> Superseded:
    return Superseded(
        f"job {job} has got to its commit {now.commits} meanwhile, and this one was to follow commit {before.commits}: "
        f"another run of it is, or was, under way"
    )


def _find(
    latest: Callable[[], Snapshot | None],
    job: str,
    files: Sequence[NewFile],
    before: Progress,
    after: Progress,
    cause: Exception,
) -> None:
    """Look up a commit without an answer. Raises CommitUnknown, Superseded."""
    try:
        snapshot = latest()
        now = None if snapshot is None else snapshot.progress(job)
        is_taken = snapshot is not None and now is not None and _is_taken(snapshot, files, now, after)
    except Exception:
        raise _unknown(job, cause) from cause
    if is_taken:
        return
    if now is None or now == before:
        raise _unknown(job, cause) from cause
    raise superseded(job, before, now) from cause


def _is_taken(snapshot: Snapshot, files: Sequence[NewFile], now: Progress, after: Progress) -> bool:
    """Whether the commit is in the table. Without files, equal progress is enough."""
    return now.commits >= after.commits and (snapshot.has(files) if files else now == after)


def _unknown(job: str, cause: Exception) -> CommitUnknown:
    return CommitUnknown(f"job {job}: whether a commit was taken is not known: {cause}")
