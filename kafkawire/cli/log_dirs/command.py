"""`kafkawire log-dirs strays`: logs of a log dir that the metadata do not name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kafkawire.cli.common.cluster_command import Report, shown_time
from kafkawire.cli.segments.command import Work, log_dir_command

if TYPE_CHECKING:
    from engine.files.filesystem import FileSystem
    from engine.log_dirs.stray_files import Stray

_COLUMNS: Final = ("STRAY", "TOPIC", "PARTITION", "BYTES", "SINCE", "RUNNING-TIME", "STATE")
_HOUR_MS: Final = 3_600_000
DECIDED_LATER: Final = (
    "the next start of the broker decides: if the metadata does not name the topic id, the log becomes a stray again, "
    "and its retention begins anew"
)
_NAMES: Final = click.argument("names", nargs=-1, required=True, metavar="STRAY...")


@click.group("log-dirs")
def command() -> None:
    """Manage the directories in log.dirs."""


@command.group("strays")
def strays() -> None:
    """List, restore and delete logs that the metadata do not name."""


@strays.command("list")
@log_dir_command
def list_strays() -> Work:
    """Show the strays of a log dir. A broker may run on it."""

    def work(filesystem: FileSystem, path: str) -> Report:
        from engine.log_dirs.stray_files import find_strays

        found = find_strays(filesystem, path)
        return Report([_entry(one) for one in found], _COLUMNS, [_row(one) for one in found])

    return work


@strays.command("restore")
@_NAMES
@log_dir_command
def restore(names: tuple[str, ...]) -> Work:
    """Rename strays to their plain names, on a log dir on which no broker runs.

    A broker does this by itself when the metadata name the topic id again. The next start decides: if the metadata do
    not name the topic id, the log becomes a stray again.
    """

    def work(filesystem: FileSystem, path: str) -> Report:
        from engine.offline.inspection import held
        from engine.offline.strays import restore as restore_strays

        with held(filesystem, path):
            done, problems = restore_strays(filesystem, path, names)
        return Report({"done": done}, (), [(one,) for one in done], [DECIDED_LATER] if done else [], problems)

    return work


@strays.command("delete")
@_NAMES
@click.option("--yes", is_flag=True, help="Discard the data.")
@log_dir_command
def delete(names: tuple[str, ...], yes: bool) -> Work:
    """DISCARD THE DATA of strays: delete them, on a log dir on which no broker runs.

    A broker does this by itself after log.dir.stray.retention.ms.
    """

    def work(filesystem: FileSystem, path: str) -> Report:
        from engine.offline.inspection import held
        from engine.offline.strays import delete as delete_strays

        if not yes:
            raise click.ClickException("this discards the records of these logs for good: repeat it with --yes")
        with held(filesystem, path):
            done, problems = delete_strays(filesystem, path, names)
        return Report({"done": done}, (), [(one,) for one in done], problems=problems)

    return work


def _state(stray: Stray) -> str:
    if stray.metadata is not None:
        return "kept"
    return "older" if stray.key is None else "damaged"


def _row(stray: Stray) -> tuple[object, ...]:
    number = stray.key[1] if stray.key is not None else None
    kept = f"{stray.kept_ms / _HOUR_MS:.1f}h" if stray.metadata is not None else None
    return stray.name, stray.topic, number, stray.size_bytes, shown_time(stray.at_ms), kept, _state(stray)


def _entry(stray: Stray) -> dict[str, object]:
    topic_id, number = stray.key or (None, None)
    return {
        "stray": stray.name,
        "topic": stray.topic,
        "topic_id": topic_id and topic_id.hex(),
        "partition": number,
        "bytes": stray.size_bytes,
        "since_ms": stray.at_ms,
        "running_time_ms": stray.kept_ms,
        "state": _state(stray),
    }
