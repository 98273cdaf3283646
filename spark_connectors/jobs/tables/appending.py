"""A commit that was refused, or was not answered: what became of it.

Stores take a commit only on top of what its writer has seen. One that is refused may have lost to somebody else of the
job, which ends it, or to a stranger, and then it is tried again on top of that. One that got no answer is looked for.
Either may be in the table all the same: a store's client asks again where an answer is lost, and is then refused
because of itself. Files have names that nobody else uses, so they tell whose commit it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from spark_connectors.jobs.tables.api import Progress, check_job, check_step
from spark_connectors.jobs.tables.errors import CommitUnknown, Superseded
from spark_connectors.jobs.tables.facts import NewFile

ATTEMPTS: Final = 10  # against strangers; each of them has committed in between


class Refused(Exception):
    """Somebody else has committed since the table was looked at; this commit is not in it, unless it was this one."""


class Snapshot(Protocol):
    """A table as it was at one moment."""

    def progress(self, job: str) -> Progress: ...

    def check(self, files: Sequence[NewFile]) -> None:
        """Raises SchemaRefused, TableRefused."""

    def has(self, files: Sequence[NewFile]) -> bool:
        """Any of them. There is at least one."""

    def append(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        """Only on top of this snapshot, as far as the job goes. Raises Refused, or anything, of which nobody knows
        whether the table has taken it."""


def append(
    latest: Callable[[], Snapshot | None], job: str, files: Sequence[NewFile], before: Progress, after: Progress
) -> None:
    """`latest` says None if there is no such table. Raises as `Table.commit` does."""
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
    """Nothing was tried before the first refusal. Raises CommitUnknown after it."""
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
    """A commit that was not answered. Raises CommitUnknown, Superseded."""
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
    """Without files it matters to nobody whose commit it was."""
    return now.commits >= after.commits and (snapshot.has(files) if files else now == after)


def _unknown(job: str, cause: Exception) -> CommitUnknown:
    return CommitUnknown(f"job {job}: whether a commit was taken is not known: {cause}")
